"""A training applies its retention policy itself, in the background, after each commit."""

import os
import signal

import pytest
import torch

import everstep as es
from everstep.errors import AccessDenied, UsageError
from everstep.events import Pruned, PruneFailing, SaveCommitted
from everstep.repository.catalogue import checkpoints
from everstep.repository.opening import open_repository
from everstep.repository.verified import verified
from everstep.repository.verify import verify
from everstep.retention.standing import standing_policy
from everstep.store.memory import MemoryStore


def train(store, *, until, run="r", state=None, listener=None, **arguments):
    """So many steps, each saved; all tensors change in each. What was told."""
    told = []
    state = {"w": torch.zeros(100)} if state is None else state
    with es.Checkpointer(store, run, listener=listener or told.append, **arguments) as ckpt:
        for step in ckpt.loop(state, until=until):
            state["w"] += 1
            ckpt.log(val_loss=abs(step - 3))
    return told


def steps_of(store, run="r"):
    """The steps that stand, newest first."""
    return [one.step for one in checkpoints(open_repository(store, create=False), run)]


def keys(store, prefix=""):
    """All keys."""
    return [found.key for found in store.list(prefix)]


def test_what_the_policy_does_not_keep_is_gone_with_its_bytes():
    """Of ten checkpoints the last two and the best stand; the store has their packs and no others."""
    store = MemoryStore()
    told = train(store, until=10, every=1, keep="last 2, best 1 by val_loss")
    assert steps_of(store) == [10, 9, 4]
    assert len(keys(store, "packs/")) == 3
    assert len(keys(store, "runs/r/plans/")) == len(keys(store, "runs/r/tombs/")) - 4 == 3
    repository = open_repository(store, create=False)
    assert all(verify(repository, one) == [] for one in checkpoints(repository, "r"))
    given_up = [step for event in told if isinstance(event, Pruned) for step in event.steps]
    assert sorted(given_up) == [1, 2, 3, 5, 6, 7, 8]
    assert sum(event.bytes for event in told if isinstance(event, Pruned)) > 7 * 400


def test_without_a_policy_nothing_is_looked_at():
    """No tombs, no marks, no lists beyond those of the saves."""
    store = MemoryStore()
    train(store, until=5, every=1)
    assert steps_of(store) == [5, 4, 3, 2, 1]
    assert not keys(store, "runs/r/tombs/")


def test_a_grace_keeps_bytes_for_an_undelete():
    """Pruned at once, swept later."""
    store = MemoryStore()
    train(store, until=4, every=1, keep="last 1", grace="1h")
    assert steps_of(store) == [4]
    assert len(keys(store, "packs/")) == 4
    train(store, until=5, every=1, keep="last 1")
    assert steps_of(store) == [5, 4], "the one that was restored is verified, and stays"
    assert len(keys(store, "packs/")) == 2


def test_the_policy_of_a_launch_is_written_down():
    """In the attempt's record, as text that is read back; settings give it where the program does not."""
    store = MemoryStore()
    train(store, until=1, every="10m", keep=["last 3", "daily 7"])
    from everstep.repository.fence import read_attempt

    record = read_attempt(open_repository(store, create=False), "r", 1)
    assert (record.keep, record.every) == ("last 3, daily 7", "10m")


def test_a_launch_that_keeps_all_takes_the_place_of_a_policy_before():
    """Who takes ``keep`` out of a program wants nothing deleted, by a cron job neither."""
    store = MemoryStore()
    train(store, until=1, keep="last 3")
    repository = open_repository(store, create=False)
    assert standing_policy(repository, "r").text() == "last 3"
    train(store, until=2)
    assert standing_policy(repository, "r").keeps_all


def test_policy_and_cadence_may_come_from_the_environment(monkeypatch):
    """EVERSTEP_KEEP and EVERSTEP_EVERY, where the program says nothing."""
    store = MemoryStore()
    monkeypatch.setenv("EVERSTEP_KEEP", "last 1")
    monkeypatch.setenv("EVERSTEP_EVERY", "2 steps")
    told = train(store, until=6)
    assert steps_of(store) == [6]
    assert sum(isinstance(event, Pruned) for event in told) >= 1


def test_nonsense_is_refused_before_the_store_is_touched():
    """A misspelt policy costs nothing."""
    store = MemoryStore()
    for wrong in (
        {"keep": "lats 3"},
        {"keep": "last 0"},
        {"keep": "at most $50"},
        {"grace": "soon"},
        {"every": "sometimes"},
    ):
        with pytest.raises(UsageError):
            es.Checkpointer(store, "r", **wrong)
    assert keys(store) == []


def test_an_unknown_metric_is_told_and_nothing_is_pruned():
    """The training goes on: which metrics there are is in the message."""
    store = MemoryStore()
    told = train(store, until=3, every=1, keep="last 1, best 1 by accurracy max")
    failing = [event for event in told if isinstance(event, PruneFailing)]
    assert len(failing) == 1, "once, not after every commit"
    assert "val_loss" in failing[0].error
    assert steps_of(store) == [3, 2, 1]


class _NoDeletes(MemoryStore):
    """A store whose credentials may write and not delete."""

    def delete(self, key):
        raise AccessDenied(f"no right to delete {key}", key=key)


def test_who_may_not_delete_is_told_once():
    """Tombs are written, bytes stay for one who may."""
    store = _NoDeletes()
    told = train(store, until=6, every=1, keep="last 1")
    failing = [event for event in told if isinstance(event, PruneFailing)]
    assert len(failing) == 1
    assert "everstep prune" in failing[0].error
    assert len(keys(store, "packs/")) == 6
    assert steps_of(store)[0] == 6


class _Losing(MemoryStore):
    """A store that loses the packs of one step when it is told to."""

    lost_step: int | None = None

    def lose(self):
        for key in keys(self, "packs/"):
            if f"/s{self.lost_step:016d}-" in key:
                super().delete(key)


def test_a_damaged_newest_stops_the_prune_and_is_not_built_upon():
    """Fault 15: nothing is given up, the damage is told by name, and the next save uploads all its bytes."""
    store = _Losing()
    told = []

    def listen(event):
        told.append(event)
        if isinstance(event, SaveCommitted) and event.step == 2:
            store.lost_step = 2
            store.lose()

    state = {"w": torch.zeros(100), "same": torch.ones(1000)}
    with es.Checkpointer(store, "r", keep="last 1", listener=listen) as ckpt:
        ckpt.save(1, state).wait()
        state["same"] += 1
        ckpt.save(2, state).wait()
        ckpt._retaining.wait()
        failing = [event for event in told if isinstance(event, PruneFailing)]
        assert len(failing) == 1
        assert "r@2" in failing[0].error
        assert steps_of(store) == [2, 1]
        state["w"] += 1
        ckpt.save(3, state).wait()
    repository = open_repository(store, create=False)
    newest = checkpoints(repository, "r")[0]
    assert (newest.step, verify(repository, newest)) == (3, [])
    assert newest.stored_bytes > 4000, "what did not change since the damaged one was stored again"


def test_a_stop_does_not_wait_for_the_prune():
    """Exit 75 comes when the state is durable; the next launch prunes what is left."""
    store = MemoryStore()
    state = {"w": torch.zeros(100)}
    with pytest.raises(SystemExit) as exit_, es.Checkpointer(store, "r", every=1, keep="last 1") as ckpt:
        for step in ckpt.loop(state, until=50):
            if step == 5:
                os.kill(os.getpid(), signal.SIGTERM)
            state["w"] += 1
    assert exit_.value.code == 75
    assert steps_of(store)[0] == 6
    train(store, until=7, every=1, keep="last 1", state=state)
    assert steps_of(store) == [7, 6]
    assert len(keys(store, "packs/")) == 2


def test_a_launch_with_nothing_to_do_prunes_what_the_one_before_left():
    """Stopped before its prune was done, or trained without a policy: the next launch has no commit of its own."""
    store = MemoryStore()
    train(store, until=5, every=1)
    told = train(store, until=5, every=1, keep="last 2")
    assert [event.steps for event in told if isinstance(event, Pruned)] == [(1, 2, 3)]
    assert steps_of(store) == [5, 4]


def test_a_whole_restore_is_a_verification():
    """The newest that was restored has a mark, and stays whatever the policy says, until another one has one."""
    store = MemoryStore()
    train(store, until=2, every=1)
    told = train(store, until=6, every=1, keep="last 1")
    assert {save.step for save in verified(open_repository(store, create=False), "r")} == {2}
    assert steps_of(store) == [6, 2]
    del told
    train(store, until=7, every=1, keep="last 1")
    assert steps_of(store) == [7, 6]


def test_a_restore_of_parts_is_none():
    """Leaves that were skipped were not read."""
    store = MemoryStore()
    train(store, until=1, every=1)
    state = {"w": torch.zeros(100), "new": torch.zeros(2)}
    with es.Checkpointer(store, "r", keep="last 1") as ckpt:
        assert ckpt.restore(state, strict=False, skip=["w", "new"]) == 1
        ckpt.save(2, state).wait()
    assert not verified(open_repository(store, create=False), "r")
    assert steps_of(store) == [2]
