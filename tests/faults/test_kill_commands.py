"""Real commands, killed for real at their system calls: the same command again completes."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import everstep as es
from everstep.repository.catalogue import checkpoints
from everstep.repository.opening import open_repository
from everstep.repository.verify import verify
from everstep.store.local import LocalStore
from tests.faults.test_kill import CALLS, places_in, strace_works

WORDS = {
    "fork": ("child", ["fork", "run@1", "child"]),
    "cp": ("run", ["cp", "run", "--to", "OTHER"]),
}


def trained(root: Path) -> None:
    """A run of two checkpoints."""
    with es.Checkpointer(str(root), "run", listener=lambda _event: None) as ckpt:
        for step in (1, 2):
            ckpt.save(step, {"w": np.full(100_000, float(step)), "fixed": np.arange(10)}).wait()


def asked(folder: Path, words: list[str], *options: str) -> subprocess.CompletedProcess[str]:
    """The command under strace, or bare without options."""
    command = [str(Path(sys.executable).with_name("everstep")), *words, "--store", str(folder / "store")]
    command = [str(folder / "other") if word == "OTHER" else word for word in command]
    if options:
        command = ["strace", "-f", "-qq", "-y", "-o", str(folder / "trace"), *options, *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def whole(root: Path) -> dict[str, list[int]]:
    """The steps of each run; every checkpoint verifies."""
    if not (root / "everstep.json").exists():
        return {}
    repository = open_repository(LocalStore(root), create=False)
    found = {}
    for listed in repository.store.list("catalogue/"):
        run = listed.key.removeprefix("catalogue/").removesuffix(".json")
        found[run] = [one.step for one in checkpoints(repository, run)]
        assert [verify(repository, one) for one in checkpoints(repository, run)] == [[]] * len(found[run])
    return found


@pytest.mark.skipif(not strace_works(), reason="strace is not installed, or tracing is not allowed here")
@pytest.mark.parametrize("every", [25, pytest.param(1, marks=pytest.mark.more)])
@pytest.mark.parametrize("verb", WORDS)
def test_kill_9_at_system_calls_of_a_command(tmp_path: Path, verb: str, every: int):
    """A real SIGKILL at the n-th call that touches a store: nothing half is listed, and the same again ends (fault 1).

    ``make test`` takes some of the calls, ``make test-more`` every one.
    """
    run, words = WORDS[verb]
    before = tmp_path / "before"
    trained(before / "store")
    trial = tmp_path / "trial"
    shutil.copytree(before, trial)
    done = asked(trial, words, "-e", f"trace={CALLS}")
    assert done.returncode == 0, done.stderr
    written = trial / ("store" if verb == "fork" else "other")
    complete = whole(written)[run]
    places = places_in((trial / "trace").read_text(), written)
    assert len(places) > 20
    for name, nth in places[::every]:
        shutil.rmtree(trial)
        shutil.copytree(before, trial)
        asked(trial, words, "-e", f"trace={name}", "-e", f"inject={name}:signal=KILL:when={nth}")
        assert whole(trial / "store")["run"] == [2, 1]
        assert set(whole(written).get(run, [])) <= set(complete)
        again = asked(trial, words)
        assert again.returncode == 0, again.stderr
        assert whole(written)[run] == complete
