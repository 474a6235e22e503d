"""What is read for long is pinned, and what goes meanwhile is told as pruned."""

import threading
import time

import numpy as np
import pytest

import everstep as es
from everstep.errors import AccessDenied, CheckpointPruned, MissingObject
from everstep.repository.catalogue import checkpoints
from everstep.repository.copying import copy
from everstep.repository.opening import open_repository
from everstep.repository.readers import gone_or_pruned, reading_long
from everstep.repository.tombs import bury
from everstep.repository.verify import verify
from everstep.retention import parse_keep
from everstep.retention.prune import plan_prune, prune
from everstep.retention.sweep import sweep
from everstep.store.memory import MemoryStore


def saved(store):
    """Three checkpoints that share nothing."""
    with es.Checkpointer(store, "r") as ckpt:
        for step in (1, 2, 3):
            ckpt.save(step, {"w": np.full(1000, float(step))}).wait()
    repository = open_repository(store, create=False)
    return repository, {one.step: one for one in checkpoints(repository, "r")}


def pins(repository):
    """The keys of all pins."""
    return [found.key for found in repository.store.list("readers/")]


def until(true):
    """Wait for what another thread does."""
    for _ in range(1000):
        if true():
            return
        time.sleep(0.005)
    raise AssertionError("it never came")


def test_a_short_read_writes_nothing():
    """No pin before its time."""
    repository, found = saved(MemoryStore())
    with reading_long(repository, found[1], after_s=60):
        assert pins(repository) == []
    assert pins(repository) == []


def test_a_long_read_is_pinned_until_it_ends():
    """A prune leaves it alone, and after the end the next one takes it."""
    repository, found = saved(MemoryStore())
    with reading_long(repository, found[1], after_s=0):
        until(lambda: pins(repository))
        plan = plan_prune(repository, "r", parse_keep("last 1"), now=time.time())
        assert [one.step for one in plan.victims] == [2]
        prune(repository, plan, grace_s=0)
        assert verify(repository, found[1]) == []
    assert pins(repository) == []
    plan = plan_prune(repository, "r", parse_keep("last 1"), now=time.time())
    prune(repository, plan, grace_s=0)
    assert [one.step for one in checkpoints(repository, "r")] == [3]


def test_a_reader_that_may_not_write_goes_without():
    """Reading is all it needs."""
    store = MemoryStore()
    repository, found = saved(store)

    def deny(key, body):
        raise AccessDenied(f"no right to write {key}", key=key)

    store.create = deny
    with reading_long(repository, found[1], after_s=0):
        until(lambda: any(thread.name == "everstep-reader" for thread in threading.enumerate()))
        assert verify(repository, found[1]) == []


def test_bytes_that_went_with_a_prune_are_no_damage():
    """Fault 14: told as pruned; without a tomb it is damage."""
    repository, found = saved(MemoryStore())
    gone = MissingObject("a pack is gone", key="packs/x")
    with pytest.raises(MissingObject), gone_or_pruned(repository, found[1]):
        raise gone
    bury(repository, "r", found[1].save, why="test")
    with pytest.raises(CheckpointPruned), gone_or_pruned(repository, found[1]):
        raise gone
    sweep(repository, ["r"], grace_s=0)
    with pytest.raises(CheckpointPruned):
        verify(repository, found[1])


def test_a_restore_whose_checkpoint_is_swept_in_the_middle_says_so():
    """Of a named step: it was pruned. Nothing is called damaged."""

    class Sweeping(MemoryStore):
        """Prunes step 1 when its pack is first read."""

        victim = None

        def get_range(self, key, start, into):
            if self.victim is not None and key.startswith("packs/"):
                victim, self.victim = self.victim, None
                repository = open_repository(self, create=False)
                bury(repository, "r", victim.save, why="test")
                sweep(repository, ["r"], grace_s=0)
            super().get_range(key, start, into)

    store = Sweeping()
    _, found = saved(store)
    told = []
    store.victim = found[1]
    with pytest.raises(CheckpointPruned):
        es.load(store, run="r", step=1, listener=told.append)
    assert told == []
    with es.Checkpointer(store, "r", listener=told.append) as ckpt:
        store.victim = found[2]
        with pytest.raises(CheckpointPruned):
            ckpt.restore({"w": np.zeros(1000)}, step=2)


class Watched(MemoryStore):
    """A store that tells, when a pack is read, whether its reader has a pin by then."""

    pinned = False

    def get_range(self, key, start, into):
        if key.startswith("packs/"):
            until(lambda: [*self.list("readers/")])
            self.pinned = True
        super().get_range(key, start, into)


def restored(store, found):
    """By a training."""
    with es.Checkpointer(store, "r") as ckpt:
        assert ckpt.restore({"w": np.zeros(1000)}, step=1) == 1


def loaded(store, found):
    """Without one."""
    es.load(store, run="r", step=1)


def verified(store, found):
    """Every byte."""
    assert verify(open_repository(store, create=False), found) == []


def copied(store, found):
    """To another store."""
    copy(open_repository(store, create=False), [found], open_repository(MemoryStore(), create=True))


@pytest.mark.parametrize("read", [restored, loaded, verified, copied])
def test_every_long_reader_is_pinned(read, monkeypatch):
    """A restore, a load, a verify and a copy, once they last; and no pin is left."""
    monkeypatch.setitem(reading_long.__wrapped__.__kwdefaults__, "after_s", 0)
    store = Watched()
    _, found = saved(store)
    read(store, found[1])
    assert store.pinned
    assert [*store.list("readers/")] == []
