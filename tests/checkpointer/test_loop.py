"""The loop: restore, count, save when due, stop when told."""

import os
import signal

import pytest
import torch

import everstep as es
from everstep.errors import UsageError
from everstep.store.memory import MemoryStore


def steps_of(ckpt):
    """Which steps have checkpoints, newest first."""
    return [checkpoint.step for checkpoint in ckpt.checkpoints()]


def test_it_yields_each_step_and_saves_when_due_and_at_the_end():
    """Seven steps, every third saved, and the last."""
    state = {"w": torch.zeros(2)}
    with es.Checkpointer(MemoryStore(), "r", every=3) as ckpt:
        seen = []
        for step in ckpt.loop(state, until=7):
            state["w"] += 1
            seen.append(step)
        assert seen == list(range(7))
        assert steps_of(ckpt) == [7, 6, 3]
        assert [ckpt.restore(state, step=step) for step in (3, 6)] == [3, 6]
        assert state["w"].tolist() == [6, 6]


def test_it_goes_on_where_the_last_one_stopped():
    """A second launch yields only what is left, with the state as it was."""
    store = MemoryStore()
    with es.Checkpointer(store, "r", every=2) as ckpt:
        state = {"w": torch.zeros(1)}
        for step in ckpt.loop(state, until=10):
            state["w"] += 1
            if step == 5:
                break
    with es.Checkpointer(store, "r", every=2) as ckpt:
        state = {"w": torch.full((1,), 99.0)}
        seen = []
        for step in ckpt.loop(state, until=10):
            assert state["w"].item() == step
            state["w"] += 1
            seen.append(step)
        assert seen[-1] == 9
        assert seen[0] in {4, 5}
        assert ckpt.latest().step == 10


def test_a_finished_run_has_nothing_left_to_do():
    """Run again after the end: no steps, no new checkpoint; beyond the end: an error in words."""
    store = MemoryStore()
    for _ in range(2):
        with es.Checkpointer(store, "r") as ckpt:
            assert len(list(ckpt.loop({"x": 1}, until=3))) in {3, 0}
            assert steps_of(ckpt) == [3]
    with es.Checkpointer(store, "r") as ckpt, pytest.raises(UsageError, match="until=2"):
        list(ckpt.loop({"x": 1}, until=2))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_saves_at_the_next_boundary_and_exits_75(number):
    """The handler only sets a flag: the step is finished, saved, durable, and then the exit code says so."""
    store = MemoryStore()
    state = {"w": torch.zeros(1)}
    with pytest.raises(SystemExit) as exit_, es.Checkpointer(store, "r", every=100) as ckpt:
        for step in ckpt.loop(state, until=100):
            if step == 4:
                os.kill(os.getpid(), number)
                state["w"] += 0.5
            state["w"] += 1
    assert exit_.value.code == 75
    loaded = es.load(store, run="r")
    assert loaded["w"].item() == 5.5
    with es.Checkpointer(store, "r") as ckpt:
        assert steps_of(ckpt) == [5]


def test_a_stop_signal_on_a_step_that_is_saved_anyway_saves_it_once():
    """A notice at a boundary where a save is due makes one checkpoint."""
    store = MemoryStore()
    with pytest.raises(SystemExit), es.Checkpointer(store, "r", every=5) as ckpt:
        for step in ckpt.loop({"w": torch.zeros(1)}, until=100):
            if step == 4:
                os.kill(os.getpid(), signal.SIGTERM)
    with es.Checkpointer(store, "r") as ckpt:
        assert steps_of(ckpt) == [5]


def test_a_failed_save_stops_the_loop_at_the_next_step():
    """An error of the background is not kept for the end."""
    store = MemoryStore()
    create = store.create

    def refuse(key, body):
        if key.startswith("packs/"):
            raise es.EverstepError("the disk is gone")
        create(key, body)

    store.create = refuse
    with (
        pytest.raises(es.EverstepError, match="the disk is gone"),
        es.Checkpointer(store, "r", every=1) as ckpt,
    ):
        for step in ckpt.loop({"w": torch.zeros(1)}, until=1000):
            assert step < 500


def test_progress_is_told_in_a_file(tmp_path, monkeypatch):
    """A drill sees steps, saves begun and committed, and where the run went on from."""
    from everstep.progress import read_progress

    monkeypatch.setenv("EVERSTEP_PROGRESS", str(tmp_path / "p"))
    store = MemoryStore()
    with es.Checkpointer(store, "r", every=2) as ckpt:
        list(ckpt.loop({"x": 1}, until=4))
    assert read_progress(tmp_path / "p") == (4, 2, 2, 0)
    with es.Checkpointer(store, "r", every=2) as ckpt:
        list(ckpt.loop({"x": 1}, until=6))
    assert read_progress(tmp_path / "p") == (6, 1, 1, 5)
