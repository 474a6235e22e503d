"""What a run and a store tell of themselves."""

import itertools
import random

import numpy as np
import pytest

import everstep as es
from everstep.errors import AccessDenied, RunNotFound
from everstep.planner.measured import measure_bandwidth, measure_run
from everstep.repository.opening import open_repository
from everstep.store.fault import Fault, Injection, Kind, Scripted
from everstep.store.memory import MemoryStore


def measured(store, run):
    """The figures of a run, before anything is known of its failures."""
    return measure_run(open_repository(store, create=False), run, expected_mtbf_s=3600.0)


def test_a_run_tells_its_size_and_how_much_of_it_changes():
    """Three quarters are frozen; the first checkpoint, which stores all, does not count."""
    store = MemoryStore()
    frozen = np.random.default_rng(0).standard_normal(3 * 2**20)
    with es.Checkpointer(store, "frozen") as ckpt:
        for step in (1, 2, 3):
            ckpt.save(step, {"frozen": frozen, "head": np.full(2**20, float(step))}).wait()
    found = measured(store, "frozen")
    assert found.state.value == 32 * 2**20
    assert found.changed.value == pytest.approx(0.25, abs=0.01)
    assert found.changed.where == "run frozen"
    assert (found.stall, found.bandwidth, found.slowdown) == (None, None, None)


def test_a_run_that_saved_with_auto_tells_what_saves_cost():
    """The figures that the cadence noted in its checkpoints."""
    store = MemoryStore()
    state = {"x": np.zeros(2**18), "step": 0}
    with es.Checkpointer(store, "auto", every=["1 step", "auto"]) as ckpt:
        for step in ckpt.loop(state, until=6):
            state["x"] += step
            ckpt.wait()
    found = measured(store, "auto")
    assert 0 <= found.stall.value < 5
    assert found.bandwidth.value > 1e5
    assert found.mtbf.value > 0


def test_attempts_tell_how_often_machines_fail_and_the_newest_may_still_run():
    """Two were lost, the third has no end yet: two interruptions over a prior of one an hour."""
    store = MemoryStore()
    for _ in range(3):
        state = {"x": np.zeros(1000)}
        with es.Checkpointer(store, "lost", every="1 step") as ckpt:
            for _step in itertools.islice(ckpt.loop(state, until=100), 3):
                ckpt.wait()
    found = measured(store, "lost")
    assert found.mtbf.where.startswith("run lost, 2 interruptions in ")
    assert found.mtbf.value == pytest.approx(3600 / 3, rel=0.1)
    assert found.notice_chance.where == "run lost, 0 of 2 announced"
    assert found.notice_chance.value == pytest.approx(4 / 7)


def test_a_run_that_saved_once_or_is_not_there_tells_little_or_nothing():
    """An error by name, or figures that are None."""
    store = MemoryStore()
    with es.Checkpointer(store, "one") as ckpt:
        ckpt.save(1, {"x": np.zeros(1000)}).wait()
    assert measured(store, "one").changed is None
    with pytest.raises(RunNotFound):
        measured(store, "none")


def probed(store):
    """The bandwidth by a clock that goes a tenth of a second each time."""
    ticks = itertools.count()
    return measure_bandwidth(
        store,
        name="test",
        size=4 * 10**6,
        clock=lambda: 0.0,
        monotonic=lambda: next(ticks) / 10,
        random_bytes=random.Random(0).randbytes,
    )


def test_a_store_tells_its_bandwidth_and_is_left_as_it_was():
    """By the doctor's probe: 4 MB in a tenth of a second."""
    store = MemoryStore()
    found = probed(store)
    assert found.value == pytest.approx(4e7)
    assert "a probe of 4 MB" in found.where
    assert list(store.list("")) == []


def test_a_store_that_may_not_be_written_to_is_an_error():
    """The one of the check that failed."""
    sealed = Fault(MemoryStore(), Scripted(Injection(kind=Kind.DENIED, at=1, verb="create")))
    with pytest.raises(AccessDenied):
        probed(sealed)
