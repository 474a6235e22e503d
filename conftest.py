"""The world in which every test runs: no cloud account, no proxy, one thread for arithmetic, real emulators."""

import os
import signal
from collections.abc import Iterator

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.documents import blocks_of
from tests.zygote import Zygote

pytest_plugins = ["tests.emulators.fixtures"]

# Nothing of the user's own accounts reaches a test, nor anything of a test the user's accounts.
for name in list(os.environ):
    if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "GCLOUD_", "EVERSTEP_")) or name.lower().endswith(
        "_proxy"
    ):
        del os.environ[name]
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
os.environ["AWS_CONFIG_FILE"] = os.environ["AWS_SHARED_CREDENTIALS_FILE"] = os.devnull

# A shell that starts tests in the background has them ignore SIGINT, and every process they start: tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Workers share few cores; a pool of threads in each only makes them wait for one another.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# The same examples in every run, so that a change is judged by itself; `make test-more` looks for new ones.
hypothesis.settings.register_profile("everstep", deadline=None, print_blob=True, derandomize=True)
hypothesis.settings.register_profile("more", deadline=None, print_blob=True, max_examples=1000)
hypothesis.settings.load_profile("everstep")

pytest_collect_file = blocks_of("README.md", "docs/**/*.md")


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    """A process that forks the ranks of a module's launches; it has used no store itself."""
    with Zygote() as running:
        yield running


class ByPage(LoadScopeScheduling):
    """Gives workers test by test, but a page of the docs whole: each block goes on where the one before ended."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return path if path.endswith(".md") else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):  # noqa: ANN001, ANN201 - pytest-xdist's own types
    """The scheduler of pytest-xdist, when tests run on several workers."""
    return ByPage(config, log)
