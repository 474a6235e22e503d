"""A real process gets SIGTERM in the middle of a background save."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import everstep as es
from everstep.errors import SaveFailed, StoreFull
from everstep.store.memory import MemoryStore

TRAINING = """
    import sys, time, pathlib, numpy as np, everstep as es
    from everstep.events import SaveCommitted, SaveStaged
    from everstep.store.limit import Limit
    from everstep.store.local import LocalStore

    def listen(event):
        if isinstance(event, (SaveStaged, SaveCommitted)):
            print(type(event).__name__, event.step, flush=True)

    slow = Limit(LocalStore(pathlib.Path(sys.argv[1])), bytes_per_s=float(sys.argv[3]))
    state = {"w": np.zeros(250_000), "n": 0}
    with es.Checkpointer(slow, "run", every=int(sys.argv[2]), listener=listen) as ckpt:
        for step in ckpt.loop(state, until=100_000):
            time.sleep(0.01)
            state["w"][:] = state["n"] = step + 1
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_an_asynchronous_save(tmp_path: Path, number: signal.Signals):
    """The save commits, the step of the notice too, then 75; the newest is the last commit told of (fault 7)."""
    script, store = tmp_path / "train.py", tmp_path / "store"
    script.write_text(textwrap.dedent(TRAINING))
    with subprocess.Popen(
        [sys.executable, str(script), str(store), "100", "4e6"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "SaveStaged 100\n"
        time.sleep(0.05)
        process.send_signal(number)
        told, problems = process.communicate(timeout=60)
    assert process.returncode == 75, problems
    words = [line.split() for line in told.splitlines()]
    assert words[0] == ["SaveCommitted", "100"], "the save under way was not waited for"
    staged = [int(step) for what, step in words if what == "SaveStaged"]
    committed = [int(step) for what, step in words if what == "SaveCommitted"]
    assert committed == [100, *staged]
    assert 100 < committed[-1] < 200, "the save of the notice came no sooner than the next one due"
    state = {"w": np.zeros(250_000), "n": 0}
    with es.Checkpointer(str(store), "run", on_corrupt="fail") as ckpt:
        assert ckpt.restore(state) == committed[-1]
        assert [one.step for one in ckpt.checkpoints()] == committed[::-1]
    assert (state["w"] == state["n"]).all()
    assert state["n"] == committed[-1]


def test_kill_after_the_signal(tmp_path: Path):
    """The grace ends too soon: whatever was told to be committed restores, and nothing is ahead of it (fault 7)."""
    script, store = tmp_path / "train.py", tmp_path / "store"
    script.write_text(textwrap.dedent(TRAINING))
    with subprocess.Popen(
        [sys.executable, str(script), str(store), "20", "1e6"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while process.stdout.readline() != "SaveStaged 40\n":
            pass
        process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        process.kill()
        told, _problems = process.communicate(timeout=60)
    assert "SaveCommitted 40" not in told
    state = {"w": np.zeros(250_000), "n": 0}
    with es.Checkpointer(str(store), "run", on_corrupt="fail") as ckpt:
        assert ckpt.restore(state) == 20
    assert (state["w"] == 20).all()


def test_a_save_that_fails_after_the_signal_is_no_75():
    """75 says that the state is durable: where it is not, the error of the save ends the loop (fault 7)."""

    class Full(MemoryStore):
        full = False

        def create(self, key, body):
            if self.full and key.startswith("packs/"):
                raise StoreFull(key)
            super().create(key, body)

    store, state = Full(), {"n": np.zeros(10)}
    with es.Checkpointer(store, "run", every=2, listener=lambda _event: None) as ckpt:
        with pytest.raises(SaveFailed):
            for step in ckpt.loop(state, until=100):
                state["n"][:] = step + 1
                if step == 4:
                    ckpt.wait()
                    store.full = True
                    os.kill(os.getpid(), signal.SIGTERM)
        assert ckpt.latest().step == 4
