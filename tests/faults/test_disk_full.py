"""A disk that is really full, under a Checkpointer: the save fails in words, older steps stay, nothing is left over."""

import errno
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import everstep as es
from everstep.errors import SaveFailed, StoreFull
from everstep.repository.opening import open_repository
from everstep.repository.verify import verify
from everstep.store.keys import RESERVED
from everstep.store.local import LocalStore
from tests.store.test_disk_faults import Failing

SAVES = """
    import sys, numpy as np, everstep as es
    from everstep.errors import SaveFailed
    root = sys.argv[1]
    small, large = np.arange(1000.0), np.random.default_rng(1).random(1_000_000)
    with es.Checkpointer(root, "run", listener=lambda event: None) as ckpt:
        ckpt.save(1, {"w": small}).wait()
        pending = ckpt.save(2, {"w": large})
        try:
            pending.wait()
        except SaveFailed as error:
            assert error.fields["cause"] == "E-STORE-FULL" and error.fields["bytes"] > 8_000_000, error
            assert f"{root}/packs/" in str(error), error
        else:
            sys.exit("a full disk took it all")
        assert [checkpoint.step for checkpoint in ckpt.checkpoints()] == [1]
        ckpt.save(3, {"w": small + 1}).wait()
    state = {"w": np.zeros(1000)}
    with es.Checkpointer(root, "run", on_corrupt="fail", listener=lambda event: None) as ckpt:
        assert ckpt.restore(state) == 3 and (state["w"] == small + 1).all()
        assert ckpt.restore(state, step=1) == 1 and (state["w"] == small).all()
    import os
    assert os.listdir(f"{root}/{sys.argv[2]}") == [], "unfinished files are left over"
    print("as promised")
"""


def own_disks_work() -> bool:
    """Whether this user may mount a small file system in a namespace of its own."""
    if shutil.which("unshare") is None:
        return False
    words = ["unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not own_disks_work(), reason="no file systems of one's own may be mounted here")
def test_a_real_file_system_without_room(tmp_path: Path):
    """4 MiB of disk, 8 MB of state: SaveFailed naming pack and bytes, older and later steps whole (fault 5)."""
    script, disk = tmp_path / "saves.py", tmp_path / "disk"
    script.write_text(textwrap.dedent(SAVES))
    disk.mkdir()
    mounted = f'mount -t tmpfs -o size=4m none "{disk}" && exec "$0" "$@"'
    words = [sys.executable, str(script), f"{disk}/store", RESERVED]
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mounted, *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "as promised\n", done.stderr


def state_of(step: int) -> dict[str, object]:
    """Part changes with the step, part does not."""
    return {"w": np.full(3000, step, np.float32), "fixed": np.arange(3000), "n": step}


def saved(root: Path) -> list[str]:
    """A store with step 1."""
    with es.Checkpointer(str(root), "run") as ckpt:
        ckpt.save(1, state_of(1))
    return [entry.key for entry in LocalStore(root).list("")]


@pytest.mark.parametrize("verb", ["pwrite", "fsync", "mkdir", "link"])
def test_no_room_at_any_moment_of_a_save(tmp_path: Path, verb: str):
    """Whichever call of a launch finds no room: an error naming the path; what was there is whole (fault 5)."""
    for at in range(1, 100):
        root = tmp_path / str(at)
        saved(root)
        calls = Failing(verb, errno.ENOSPC, at=at)
        committed = False
        try:
            with es.Checkpointer(LocalStore(root, calls=calls), "run", listener=lambda _event: None) as ckpt:
                ckpt.restore(state_of(0))
                ckpt.save(2, state_of(2)).wait()
                committed = True
        except (SaveFailed, StoreFull) as error:
            assert "E-STORE-FULL" in {error.code, error.fields.get("cause")}  # noqa: PT017  # the last one ends well
            assert str(root) in str(error)  # noqa: PT017
        assert list((root / RESERVED).iterdir()) == []
        state = state_of(0)
        with es.Checkpointer(str(root), "run", on_corrupt="fail") as ckpt:
            step = ckpt.restore(state)
            assert step == 2 if committed else step in {1, 2}
            assert (state["w"] == step).all()
            repository = open_repository(LocalStore(root), create=False)
            assert [verify(repository, one) for one in ckpt.checkpoints()] == [[]] * step
        if calls.count < at:
            assert committed
            assert at > 3
            break
    else:
        pytest.fail("the launch makes more calls than the test tries")
