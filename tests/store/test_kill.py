"""Fault 1 on a local disk: a real process is killed at every system call of a create that changes the disk."""

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from everstep.errors import AlreadyExists
from everstep.store.local import LocalStore

CALLS = ("mkdir", "mkdirat", "pwrite64", "fsync", "linkat", "unlinkat")
"""What a create changes the disk with; between two of them the disk stays as it is."""

SIZE = (17 << 20) + 77

CREATE = f"""
import mmap, sys
from pathlib import Path
from everstep.store.local import LocalStore
body = memoryview(mmap.mmap(-1, {SIZE}))
body[:] = b"\\x5a" * {SIZE}
store = LocalStore(Path(sys.argv[1]))
store.create("packs/7f/0", body)
print("told", flush=True)
"""


def killed_at(call: str, n: int, root: Path) -> subprocess.CompletedProcess:
    """A process that creates an object, killed as it begins its ``n``-th ``call``."""
    strace = [
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        f"--trace={call}",
        f"--inject={call}:signal=KILL:when={n}",
    ]
    return subprocess.run(
        [*strace, sys.executable, "-c", CREATE, str(root)], capture_output=True, text=True, check=False
    )


@cache
def can_trace() -> bool:
    """Whether strace is here and allowed."""
    if shutil.which("strace") is None:
        return False
    probe = ["strace", "-qq", "-o", "/dev/null", "-e", "inject=fsync:signal=KILL:when=1", "true"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not can_trace(), reason="strace is not here, or may not trace")
def test_a_create_killed_anywhere_is_whole_or_nothing(tmp_path: Path):
    """Killed at any call, the key is absent or whole; what was told is there; the next process can create."""
    whole = b"\x5a" * SIZE
    visible: dict[str, list[bool]] = {}
    for call in CALLS:
        for n in range(1, 20):
            root = tmp_path / f"{call}-{n}"
            done = killed_at(call, n, root)
            store = LocalStore(root)
            listed = {entry.key: entry.size for entry in store.list("")}
            assert listed in ({}, {"packs/7f/0": SIZE}), (call, n)
            assert listed or "told" not in done.stdout
            if listed:
                with pytest.raises(AlreadyExists):
                    store.create("packs/7f/0", whole)
            else:
                store.create("packs/7f/0", whole)
            assert store.get("packs/7f/0", SIZE) == whole
            shutil.rmtree(root)
            if done.returncode == 0:
                assert "told" in done.stdout
                break
            assert done.returncode in {-9, 137}, done.stderr
            visible.setdefault(call, []).append(bool(listed))
    assert visible == {
        "mkdir": [False] * 2,  # the root, the folder of unfinished files
        "mkdirat": [False] * 2,
        "pwrite64": [False] * 3,  # two direct, the rest
        "fsync": [False] * 4 + [True],  # the root's entry, the file, two folders' entries; the object's entry
        "linkat": [False],
        "unlinkat": [True],
    }
