"""How many requests the library makes of a store: counted, so that none is added unseen."""

import numpy as np
import pytest

import everstep as es
from everstep.store.count import Count
from everstep.store.memory import MemoryStore


def quiet(_event) -> None:
    """Listens to nothing."""


def state_at(step: int) -> dict[str, object]:
    """One pack; part of it is another at each step."""
    return {"frozen": np.ones(5000), "trained": np.full(1000, float(step))}


@pytest.fixture
def count():
    """A store that counts, with a run of two checkpoints: its requests are forgotten."""
    counted = Count(MemoryStore())
    with es.Checkpointer(counted, "run", listener=quiet) as ckpt:
        for step in (1, 2):
            ckpt.save(step, state_at(step)).wait()
    counted.clear()
    return counted


def test_a_first_launch():
    """Open a store that is not there, make it and the run, try its condition, claim the first attempt."""
    count = Count(MemoryStore())
    with es.Checkpointer(count, "run", listener=quiet) as ckpt:
        ckpt.restore(state_at(0))
        assert count.calls == {"get": 3, "create": 5, "list": 4}


def test_a_restore(count):
    """Two requests open the store; a new attempt, the newest checkpoint, its manifest and index, a range per pack."""
    with es.Checkpointer(count, "run", listener=quiet) as ckpt:
        assert count.calls == {"get": 2}
        ckpt.restore(state_at(0))
        assert count.calls == {"get": 7, "create": 2, "list": 4, "get_range": 2}


def test_a_save(count):
    """Plan, pack, index, manifest, record; the fence, the ranks; the base and its tomb."""
    with es.Checkpointer(count, "run", listener=quiet) as ckpt:
        ckpt.restore(state_at(0))
        for step in (3, 4):
            count.clear()
            ckpt.save(step, state_at(step)).wait()
            assert count.calls == {"create": 5, "list": 2, "get": 2}


def test_a_save_of_what_did_not_change(count):
    """No pack."""
    with es.Checkpointer(count, "run", listener=quiet) as ckpt:
        ckpt.restore(state_at(0))
        count.clear()
        ckpt.save(3, state_at(2)).wait()
        assert count.calls == {"create": 4, "list": 2, "get": 2}


def test_latest(count):
    """A page, a record, a tomb that is not there; as many with a hundred checkpoints."""
    with es.Checkpointer(count, "run", listener=quiet) as ckpt:
        for step in (3, 4, 5):
            ckpt.save(step, state_at(step)).wait()
        count.clear()
        assert ckpt.latest().step == 5
        assert count.calls == {"list": 1, "get": 2}


def test_a_load(count):
    """Nothing is written, nor is any attempt looked at."""
    es.load(count, "run", listener=quiet)
    assert count.calls == {"get": 5, "list": 1, "get_range": 2}


def test_on_the_wire(cloud):
    """A verb is one request on every cloud: no look before a create, no second page, no upload in parts.

    Where objects may lie in archive tiers, a restore first asks for one byte of each pack that it needs.
    """
    with es.Checkpointer(cloud.url, "run", listener=quiet) as ckpt:
        ckpt.restore(state_at(0))
        ckpt.save(1, state_at(1)).wait()
        cloud.proxy.forget()
        ckpt.save(2, state_at(2)).wait()
        assert len(cloud.proxy.asked) == 9
        cloud.proxy.forget()
        ckpt.latest()
        assert len(cloud.proxy.asked) == 3
    cloud.proxy.forget()
    with es.Checkpointer(cloud.url, "run", listener=quiet) as ckpt:
        ckpt.restore(state_at(0))
        assert len(cloud.proxy.asked) == 15 + 2 * (cloud.kind != "gcs")
