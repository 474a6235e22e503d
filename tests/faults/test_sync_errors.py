"""A disk that answers EIO to a sync: what it may have lost is never called durable."""

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import everstep as es
from everstep.errors import SaveFailed, StoreError
from everstep.store.local import LocalStore
from tests.faults.test_kill import strace_works
from tests.store.test_disk_faults import Failing

TRAINING = """
    import sys, numpy as np, everstep as es
    with es.Checkpointer(sys.argv[1], "run", listener=lambda event: None) as ckpt:
        ckpt.restore({"w": np.zeros(1000)})
        for step in (2, 3):
            try:
                ckpt.save(step, {"w": np.full(1000, float(step))}).wait()
            except es.EverstepError as error:
                print(error, error.retryable)
                ckpt.save(step, {"w": np.full(1000, float(step))}).wait()
            print("durable", step)
"""


def begun(root: Path) -> None:
    """A store with step 1."""
    with es.Checkpointer(str(root), "run") as ckpt:
        ckpt.save(1, {"w": np.full(1000, 1.0)})


class Watched(Failing):
    """Also remembers which file or folder it was whose sync failed."""

    lost: tuple[int, int] | None = None
    again: bool = False

    def fsync(self, fd: int) -> None:
        self.count += 1
        where = os.fstat(fd).st_dev, os.fstat(fd).st_ino
        if self.count == self._at:
            self.lost = where
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.again = self.again or where == self.lost
        os.fsync(fd)


def test_a_failed_sync_fails_the_save(tmp_path: Path):
    """Each sync of a launch fails once: never tried again, an error that may not be retried (fault 6)."""
    for at in range(1, 200):
        root = tmp_path / str(at)
        begun(root)
        calls = Watched("fsync", errno.EIO, at=at)
        error = None
        try:
            with es.Checkpointer(LocalStore(root, calls=calls), "run", listener=lambda _event: None) as ckpt:
                ckpt.restore({"w": np.zeros(1000)})
                ckpt.save(2, {"w": np.full(1000, 2.0)}).wait()
        except (SaveFailed, StoreError) as raised:
            error = raised
        if calls.count < at:
            assert error is None
            assert at > 10
            break
        assert error is not None, f"sync {at} failed, and the save was called durable"
        assert not error.retryable
        assert not calls.again, f"sync {at} was tried again"
        state = {"w": np.zeros(1000)}
        with es.Checkpointer(str(root), "run", on_corrupt="fail") as ckpt:
            step = ckpt.restore(state)
        assert step in {1, 2}
        assert (state["w"] == step).all()
    else:
        pytest.fail("the launch makes more syncs than the test tries")


@pytest.mark.skipif(not strace_works(), reason="strace is not installed, or tracing is not allowed here")
def test_the_kernel_itself_answers_eio(tmp_path: Path):
    """Real EIO from some of the fsyncs of a real training: told each time, never passed over (fault 6)."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(TRAINING))
    for at in (3, 9, 14):
        root = tmp_path / str(at)
        begun(root)
        words = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"inject=fsync:error=EIO:when={at}"]
        done = subprocess.run(
            [*words, sys.executable, str(script), str(root)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        told = done.stdout + done.stderr
        assert "Input/output error" in told
        assert done.returncode != 0 or "False" in done.stdout, told
