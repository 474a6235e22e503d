"""Power fails at any system call of a whole training: from every state that the disk may be in, it goes on."""

from pathlib import Path

import numpy as np
import pytest

import everstep as es
from everstep.repository.catalogue import checkpoints, runs
from everstep.repository.opening import open_repository
from everstep.repository.verify import verify
from everstep.store.keys import RESERVED
from everstep.store.local import LocalStore
from everstep.store.memory import MemoryStore
from tests.store.crash_states import Recorder, lost_states


class Broken(Exception):
    """A promise that a power loss broke."""


def state_of(step: int) -> dict[str, object]:
    """Part changes with the step, part does not."""
    return {"w": np.full(50, step, np.float32), "fixed": np.arange(50), "n": step}


def quiet(_event: object) -> None:
    """Hears nothing."""


def train(recorder: Recorder) -> None:
    """Two launches of two saves each; each step is written down when it was said to be durable."""
    for steps in ((1, 2), (3, 4)):
        store = LocalStore(recorder.root, calls=recorder)
        with es.Checkpointer(store, "run", listener=quiet) as ckpt:
            ckpt.restore(state_of(0))
            for step in steps:
                ckpt.save(step, state_of(step)).wait()
                recorder.told("durable", str(step))


def go_on(files: dict[str, bytes], durable: int) -> None:
    """A launch after the power came back. Raises `Broken`."""
    store = MemoryStore()
    for path, body in files.items():
        store.create(path.removeprefix("store/"), body)
    try:
        state = state_of(-1)
        with es.Checkpointer(store, "run", on_corrupt="fail", listener=quiet) as ckpt:
            step = ckpt.restore(state) or 0
            ckpt.save(9, state_of(9)).wait()
        repository = open_repository(store, create=False)
        damage = [
            verify(repository, one) for run in runs(repository) for one in checkpoints(repository, run.run)
        ]
    except es.EverstepError as error:
        raise Broken(str(error)) from error
    if any(damage):
        raise Broken(str(damage))
    if step < durable:
        raise Broken(f"step {durable} was durable, and {step} came back")
    if step and not (
        state["n"] == step and (state["w"] == step).all() and (state["fixed"] == np.arange(50)).all()
    ):
        raise Broken(f"step {step} came back as {state}")


def check(recorder: Recorder) -> int:
    """Every state once; how many there are."""
    seen = set()
    for _calls, files, told in lost_states(recorder, RESERVED):
        durable = int(told[-1][1]) if told else 0
        one = (durable, frozenset(files.items()))
        if one not in seen:
            seen.add(one)
            go_on(files, durable)
    return len(seen)


def test_no_power_loss_loses_what_was_durable(tmp_path: Path):
    """What `wait` returned for restores bit for bit, nothing torn is a checkpoint, and training goes on (fault 3)."""
    recorder = Recorder(tmp_path / "store")
    train(recorder)
    assert check(recorder) > 24  # each object of each save appears alone


@pytest.mark.more
def test_many_syncs_are_needed(tmp_path: Path):
    """Leave out any one sync of an object or of its name in the second launch: most of them lose a promise."""
    whole = Recorder(tmp_path / "store")
    train(whole)
    broken = 0
    for n in range(1, whole.syncs + 1):
        (tmp_path / str(n)).mkdir()
        mutant = Recorder(tmp_path / str(n) / "store", drop=frozenset({n}))
        train(mutant)
        try:
            check(mutant)
        except Broken:
            broken += 1
    assert broken > whole.syncs // 2
