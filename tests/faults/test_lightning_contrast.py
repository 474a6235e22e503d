"""One of two ranks gets SIGTERM: what Lightning 2.6.6 makes of it, and what everstep does in the same training."""

import importlib.metadata
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

import everstep as es

pytestmark = pytest.mark.more

HERE = Path(__file__).parent
LIGHTNING = "2.6.6"
STARTED_S, ENDED_S, STILL_S = 180, 60, 20


class Ranks:
    """Two processes with what torchrun tells its workers; nobody watches over them, as a launcher would."""

    def __init__(self, program, folder, *arguments):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        shared = {
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        shared |= {"TORCHELASTIC_RUN_ID": folder.name, "GROUP_RANK": "0", "OMP_NUM_THREADS": "1"}
        folder.mkdir()
        self._said = [folder / f"rank-{rank}" for rank in range(2)]
        self._processes = []
        for rank, said in enumerate(self._said):
            told = {**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            with said.open("w") as out:
                command = [sys.executable, str(HERE / program), *map(str, arguments)]
                self._processes.append(subprocess.Popen(command, env=told, stdout=out, stderr=out))

    def steps(self):
        """The last step that each rank began or ended."""
        lines = [
            [line for line in said.read_text().splitlines() if line.startswith("step ")]
            for said in self._said
        ]
        return [int(each[-1].split()[1]) if each else 0 for each in lines]

    def reach(self, step):
        """Wait until both ranks are at a step."""
        until = time.monotonic() + STARTED_S
        while min(self.steps()) < step and time.monotonic() < until:
            time.sleep(0.1)
        assert min(self.steps()) >= step, self.said()

    def terminate(self, rank):
        """SIGTERM to one rank."""
        self._processes[rank].send_signal(signal.SIGTERM)

    def codes(self, timeout_s):
        """The exit codes; None for a rank that still runs after the time."""
        until = time.monotonic() + timeout_s
        while None in (found := [each.poll() for each in self._processes]) and time.monotonic() < until:
            time.sleep(0.1)
        return found

    def said(self):
        """All output."""
        return "\n".join(said.read_text() for said in self._said)

    def kill(self):
        """End what runs."""
        for each in self._processes:
            each.kill()
            each.wait()


@contextmanager
def two_ranks(program, folder, *arguments):
    """Two running ranks, killed at the end of the block."""
    ranks = Ranks(program, folder, *arguments)
    try:
        yield ranks
    finally:
        ranks.kill()


@pytest.fixture
def lightning():
    """The version that this page speaks of."""
    try:
        version = importlib.metadata.version("lightning")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"Lightning is not installed: pip install lightning=={LIGHTNING}")
    if version != LIGHTNING:
        pytest.skip(f"this says what Lightning {LIGHTNING} does, and {version} is installed")


@pytest.mark.usefixtures("lightning")
@pytest.mark.parametrize("told", [0, 1])
def test_lightning_stands_still_and_saves_nothing(tmp_path, told):
    """The rank that is told answers with a broadcast inside its signal handler, and the other one is elsewhere.

    Seen in 14 of 16 launches. In two, rank 0's broadcast met the one that Lightning itself does in each step: rank 0
    saved and exited with 0, rank 1 failed in the barrier of that save. So a launch that ends is not held against it.
    """
    for launch in range(3):
        checkpoints = tmp_path / f"checkpoints-{launch}"
        with two_ranks("lightning_rank.py", tmp_path / f"ranks-{launch}", checkpoints) as ranks:
            ranks.reach(20)
            ranks.terminate(told)
            if ranks.codes(STILL_S) != [None, None]:
                continue
            stood = ranks.steps()
            time.sleep(2)
            assert ranks.steps() == stood
            assert "Received SIGTERM" in ranks.said()
            assert not list(checkpoints.rglob("*"))
            return
    pytest.fail("it ended in three launches of three")


@pytest.mark.parametrize("told", [0, 1])
def test_everstep_saves_one_step_and_ends(tmp_path, told):
    """Whichever rank is told, both save the same step and exit with 75; the next launch goes on there."""
    store = tmp_path / "store"
    with two_ranks("loop_rank.py", tmp_path / "first", store, 1_000_000) as ranks:
        ranks.reach(20)
        ranks.terminate(told)
        assert ranks.codes(ENDED_S) == [75, 75], ranks.said()
        last = ranks.steps()
    saved = es.Checkpointer(str(store), "contrast").latest()
    assert last == [saved.step, saved.step]
    with two_ranks("loop_rank.py", tmp_path / "second", store, saved.step + 3) as ranks:
        assert ranks.codes(STARTED_S) == [0, 0], ranks.said()
        assert f"step {saved.step}\n" not in ranks.said()
        assert ranks.said().count(f"step {saved.step + 1}\n") == 2
