"""The file that tells how far a training is."""

import os
import signal

from everstep.progress import ProgressFile, read_progress


def test_counts_are_read_back(tmp_path):
    """Each count is where a reader looks for it; a first run resumed from nowhere."""
    file = ProgressFile(tmp_path / "progress")
    assert read_progress(tmp_path / "progress") == (0, 0, 0, 0)
    file.step(7)
    file.begun(3)
    file.committed(2)
    file.resumed(0)
    assert read_progress(tmp_path / "progress") == (7, 3, 2, 1)
    file.resumed(None)
    assert read_progress(tmp_path / "progress")[3] == 0


def test_no_file_reads_as_nothing_done(tmp_path):
    """A process that has not begun yet has done nothing."""
    assert read_progress(tmp_path / "absent") == (0, 0, 0, 0)


def test_counts_survive_kill_9(tmp_path):
    """What was told before a kill -9 is there after it."""
    path = tmp_path / "progress"
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        file = ProgressFile(path)
        file.step(2**40)
        os.write(tell, b"told")
        signal.pause()
        os._exit(0)
    os.read(ready, 4)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert read_progress(path)[0] == 2**40
