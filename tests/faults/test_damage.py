"""Bytes in the store that are not what was written: found on every read, told by name, passed over or not."""

import logging

import numpy as np
import pytest
import torch

import everstep as es
from everstep import events
from everstep.errors import CorruptChunk, IntegrityError, MissingObject
from everstep.repository.catalogue import checkpoints
from everstep.repository.opening import open_repository
from everstep.repository.verify import verify
from everstep.store.memory import MemoryStore


def saved(store, steps=(1, 2, 3)):
    """A run with some checkpoints of two leaves."""
    with es.Checkpointer(store, "run") as ckpt:
        for step in steps:
            ckpt.save(step, {"a": np.full(3000, step, np.float32), "b": {"c": np.arange(10) * step}})
    return store


def spoil(store, key, position=-1, bits=1):
    """Flip bits of one byte of an object, behind everstep's back."""
    body = bytearray(store.get(key, 2**30))
    body[position] ^= bits
    store.delete(key)
    store.create(key, bytes(body))


def packs_of(store, step):
    """The packs that a step's save wrote."""
    return [listed.key for listed in store.list("packs/") if f"s{step:016d}-" in listed.key]


def blank():
    """A state to restore into."""
    return {"a": np.zeros(3000, np.float32), "b": {"c": np.zeros(10, np.int64)}}


def test_a_damaged_newest_falls_back_to_the_one_before_loudly(caplog):
    """on_corrupt="previous": the newest that verifies is restored; the log names the damage (fault 24)."""
    store = saved(MemoryStore())
    spoil(store, packs_of(store, 3)[0])
    state, heard = blank(), []

    def listen(event):
        heard.append(event)

    with es.Checkpointer(store, "run", listener=listen) as ckpt:
        assert ckpt.restore(state) == 2
    assert (state["a"] == 2).all()
    assert [(event.damaged_step, event.to_step) for event in heard if isinstance(event, events.FellBack)] == [
        (3, 2)
    ]
    with caplog.at_level(logging.ERROR), es.Checkpointer(store, "run") as ckpt:
        ckpt.restore(state)
    assert "DAMAGED" in caplog.text
    assert "step 3" in caplog.text


def test_a_damaged_commit_record_is_passed_over_too():
    """The newest record itself may be what is damaged: the one before is restored; with "fail" it is an error."""
    store = saved(MemoryStore())
    key = next(listed.key for listed in store.list("runs/run/commits/"))
    spoil(store, key, position=20)
    with (
        es.Checkpointer(store, "run", on_corrupt="fail") as ckpt,
        pytest.raises(IntegrityError, match="commits"),
    ):
        ckpt.restore(blank())
    state = blank()
    with es.Checkpointer(store, "run") as ckpt:
        assert ckpt.restore(state) == 2
    assert (es.load(store, run="run")["a"] == 2).all()


def test_after_a_fall_back_the_run_goes_on_from_there():
    """What is saved after the fall-back is the newest, and refers to no damaged byte."""
    store = saved(MemoryStore())
    spoil(store, packs_of(store, 3)[0])
    state = blank()
    with es.Checkpointer(store, "run") as ckpt:
        assert ckpt.restore(state) == 2
        ckpt.save(3, state)
    again = blank()
    with es.Checkpointer(store, "run", on_corrupt="fail") as ckpt:
        assert ckpt.restore(again) == 3
    assert (again["a"] == 2).all()


def test_with_fail_a_damaged_newest_stops_with_everything_named():
    """on_corrupt="fail": run, step, rank, key, offset and leaf stand in the error (fault 4)."""
    store = saved(MemoryStore())
    key = packs_of(store, 3)[0]
    spoil(store, key)
    with es.Checkpointer(store, "run", on_corrupt="fail") as ckpt, pytest.raises(CorruptChunk) as caught:
        ckpt.restore(blank())
    for fact in ("run", "3", key, "b/c"):
        assert fact in str(caught.value)


def test_when_all_are_damaged_the_first_damage_is_raised():
    """There is nothing to fall back to: an error, never a fresh start."""
    store = saved(MemoryStore())
    for step in (1, 2, 3):
        for key in packs_of(store, step):
            spoil(store, key)
    with es.Checkpointer(store, "run") as ckpt, pytest.raises(IntegrityError, match="3"):
        ckpt.restore(blank())
    with pytest.raises(IntegrityError):
        es.load(store, run="run")


def test_an_explicit_step_never_falls_back():
    """Who asks for a step gets it or an error."""
    store = saved(MemoryStore())
    spoil(store, packs_of(store, 3)[0])
    with es.Checkpointer(store, "run") as ckpt, pytest.raises(CorruptChunk):
        ckpt.restore(blank(), step=3)
    with pytest.raises(CorruptChunk):
        es.load(store, run="run", step=3)


def test_a_missing_pack_lists_each_affected_leaf():
    """Verify names every leaf of a pack that is gone; a restore names it too (fault 23)."""
    store = saved(MemoryStore(), steps=(1,))
    for key in packs_of(store, 1):
        store.delete(key)
    repository = open_repository(store, create=False)
    damage = verify(repository, checkpoints(repository, "run")[0])
    assert {one.path for one in damage} == {"a", "b/c"}
    with es.Checkpointer(store, "run") as ckpt, pytest.raises(MissingObject):
        ckpt.restore(blank())


@pytest.mark.parametrize("cut", [1, 100, 4096])
def test_a_pack_that_was_cut_is_found(cut):
    """A shorter object is damage, wherever it ends (fault 4)."""
    store = saved(MemoryStore(), steps=(1,))
    key = packs_of(store, 1)[0]
    body = store.get(key, 2**30)
    store.delete(key)
    store.create(key, body[:-cut])
    with es.Checkpointer(store, "run") as ckpt, pytest.raises(es.EverstepError) as caught:
        ckpt.restore(blank())
    assert key in str(caught.value)


def test_every_byte_of_every_object_is_guarded():
    """A bit flipped in any object, all over it, is found by a restore or by verify, never silent (fault 22)."""
    store = MemoryStore()
    with es.Checkpointer(store, "run", config={"lr": 1}) as ckpt:
        ckpt.save(1, {"a": np.arange(5.0), "n": 3}, metrics={"loss": 0.5})
    whole = {listed.key: store.get(listed.key, 2**30) for listed in store.list("")}
    silent = [
        (key, position)
        for key, body in whole.items()
        for position in range(0, len(body), max(1, len(body) // 300))
        if not noticed({**whole, key: flipped(body, position)})
    ]
    assert not silent


def flipped(body, position):
    """The bytes with one bit of one byte flipped."""
    return body[:position] + bytes([body[position] ^ 1 << position % 8]) + body[position + 1 :]


def noticed(objects):
    """Whether opening, restoring or verifying a store of these objects tells of damage."""
    store = MemoryStore()
    for key, body in objects.items():
        store.create(key, body)
    try:
        with es.Checkpointer(store, "run", on_corrupt="fail") as ckpt:
            ckpt.restore({"a": np.zeros(5), "n": 0})
        repository = open_repository(store, create=False)
        return bool(verify(repository, checkpoints(repository, "run")[-1]))
    except es.EverstepError:
        return True


def test_not_finite_leaves_are_named():
    """With check_finite a checkpoint that holds NaN is saved, and says which leaf (fault 25)."""
    store = MemoryStore()
    state = {
        "good": torch.ones(10),
        "bad": torch.tensor([1.0, float("nan")]),
        "half": torch.tensor([float("inf")], dtype=torch.bfloat16),
        "eight": torch.tensor([float("nan")]).to(torch.float8_e4m3fn),
        "many": torch.cat([torch.zeros(3_000_000), torch.tensor([float("-inf")])]),
        "whole": torch.arange(4),
    }
    with es.Checkpointer(store, "run", check_finite=True) as ckpt:
        ckpt.save(1, state)
        ckpt.wait()
        ckpt.save(2, {"good": torch.ones(3)})
    repository = open_repository(store, create=False)
    from everstep.repository.reading import read_manifest

    newest, oldest = (
        read_manifest(repository, one).meta.not_finite for one in checkpoints(repository, "run")
    )
    assert newest == ()
    assert set(oldest) == {"bad", "half", "eight", "many"}
