"""The command line starts fast because it loads little."""

import json
import subprocess
import sys

import pytest

from tests.cli.worlds import trained

HEAVY = {"numpy", "torch", "jax", "obstore", "rich", "safetensors", "asyncio", "ssl", "tomllib", "hashlib"}
LOADED = """
import json, sys
bare = set(sys.modules)
from everstep.cli.entry import run
code = run(json.loads(sys.argv[1]))
print(json.dumps([code, sorted(set(sys.modules) - bare)]), file=sys.stderr)
"""


def loaded(*words, folder):
    """The exit code, and the modules that a command loaded."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, json.dumps(words)],
        capture_output=True,
        text=True,
        cwd=folder,
        check=True,
    )
    code, modules = json.loads(done.stderr.splitlines()[-1])
    return code, set(modules)


def test_help_loads_no_verb_and_nothing_heavy(tmp_path):
    """The list of verbs is shown without importing one."""
    code, modules = loaded("--help", folder=tmp_path)
    assert code == 0
    assert not modules & HEAVY
    assert not {name for name in modules if name.startswith(("everstep.store", "everstep.repository"))}
    assert len(modules) < 130, sorted(modules)


@pytest.mark.parametrize("words", [["ls"], ["ls", "digits"], ["ls", "digits", "--json"]])
def test_ls_on_a_local_store_loads_nothing_heavy(words, tmp_path):
    """Listing a folder needs no array library, no cloud client and no terminal painter."""
    store = trained(tmp_path / "store", steps=(10,))
    code, modules = loaded(*words, "--store", store, folder=tmp_path)
    assert code == 0
    assert not modules & HEAVY
    assert len(modules) < 260, sorted(modules)
