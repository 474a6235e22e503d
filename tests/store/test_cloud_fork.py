"""A process that was forked after a cloud store was used gets an error, never a hang."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, sys
from everstep.errors import StoreError
from everstep.store.opening import open_store
store = open_store(sys.argv[1])
used_before = sys.argv[2] == "used"
if used_before:
    store.create("parent", b"1")
pid = os.fork()
if pid == 0:
    told = 0
    for one in (store, open_store(sys.argv[1])):
        try:
            one.create("child" if one is store else "child2", b"1")
        except StoreError as error:
            told += "forked from process" in str(error) and "spawn" in error.hint
    os._exit(10 + told)
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
store.create("after", b"1")
print(code, [one.key for one in store.list("")])
"""


@pytest.mark.parametrize(
    ("when", "wanted"),
    [("used", "12 ['after', 'parent']"), ("unused", "10 ['after', 'child', 'child2']")],
)
def test_a_forked_child(moto_server, when, wanted):
    """After use: an error that says what to do, and the parent goes on. Before use: the child just works."""
    environ = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_ENDPOINT_URL": moto_server.endpoint,
    }
    url = f"s3://{moto_server.bucket()}/x"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, url, when],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.strip() == wanted, done.stderr
