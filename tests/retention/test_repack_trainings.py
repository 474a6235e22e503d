"""Real trainings beside a repack: what they saved restores bit for bit, and a restore under way is none the wiser."""

from __future__ import annotations

import numpy as np
import pytest

import everstep as es
from everstep.repository.catalogue import checkpoints
from everstep.repository.opening import open_repository
from everstep.repository.settle import undecided
from everstep.repository.verify import verify
from everstep.retention.repack import repack
from everstep.retention.space import space
from everstep.retention.sweep import sweep
from everstep.store.count import Count
from everstep.store.local import LocalStore
from everstep.store.memory import MemoryStore
from tests.retention.beside import Beside
from tests.retention.thin import bury_all, total

FROZEN = 200_000
HEAD = 900_000


def state_at(step: int) -> dict[str, object]:
    """A part that never changes, a larger one that always does, and plain values."""
    return {
        "frozen": {"embed": np.arange(FROZEN // 4, dtype=np.float32)},
        "head": {"w": np.random.default_rng(step).standard_normal(HEAD // 8)},
        "step": step,
    }


def same(found, step: int) -> None:
    """Bit for bit the state of a step."""
    wanted = state_at(step)
    assert np.array_equal(found["frozen"]["embed"], wanted["frozen"]["embed"])
    assert np.array_equal(found["head"]["w"], wanted["head"]["w"])
    assert found["step"] == step


def trained(store, steps=(10, 20, 30, 40)):
    """A training that saved at these steps; gives its repository."""
    with es.Checkpointer(store, "run") as ckpt:
        for step in steps:
            ckpt.save(step, state_at(step), metrics={"loss": 1 / step}).wait()
    return open_repository(store, create=False)


def thin(store, keep: int = 2):
    """All but the last checkpoints are pruned and swept: one old pack is left for the part that never changes."""
    repo = trained(store)
    bury_all(repo, *checkpoints(repo, "run")[keep:])
    sweep(repo, None, grace_s=0)
    return repo


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_what_a_training_saved_restores_after_it(kind, tmp_path):
    """The pack shrinks to what is needed, by what was promised; both checkpoints load and restore."""
    store = Count(MemoryStore() if kind == "memory" else LocalStore(tmp_path / "store"))
    repo = thin(store)
    before = total(store)
    assert space(repo, deep=True).dead == HEAD
    store.clear()
    done = repack(repo)
    moved = [(verb, key) for verb, key in store.log if key.startswith("packs/") and verb != "list"]
    assert [verb for verb, _ in moved] == ["get_range", "get_range", "create", "get_range"]
    assert store.bytes_in < FROZEN + 40_000
    sweep(repo, None, grace_s=0)
    assert total(store) == before - done.bytes_freed
    assert abs(done.bytes_freed - HEAD) < 10_000
    assert [one.step for one in checkpoints(repo, "run")] == [40, 30]
    assert [damage for one in checkpoints(repo, "run") for damage in verify(repo, one)] == []
    for step in (30, 40):
        same(es.load(store, "run", step=step), step)
    fresh = {**state_at(0)}
    with es.Checkpointer(store, "run") as ckpt:
        assert ckpt.restore(fresh) == 40
    same(fresh, 40)


def test_a_training_goes_on_over_a_repack():
    """Saves before and after are whole, with a repack and a sweep after each; the run ends with what it saved."""
    store = MemoryStore()
    repo = thin(store, keep=1)
    with es.Checkpointer(store, "run") as ckpt:
        fresh = state_at(0)
        assert ckpt.restore(fresh) == 40
        same(fresh, 40)
        for step in (50, 60, 70):
            ckpt.save(step, state_at(step)).wait()
            bury_all(repo, *checkpoints(repo, "run")[1:])
            sweep(repo, None, grace_s=0)
            repack(repo)
            sweep(repo, None, grace_s=0)
            same(es.load(store, "run"), step)
    found = space(repo, deep=True)
    assert (found.waiting, found.garbage, found.sparse) == (0, 0, 0)
    assert total(store) == found.stored < FROZEN + HEAD + 20_000


def test_a_save_after_a_repack_of_its_base_stores_what_moved_and_no_more():
    """The training's next save refers to what the repacked base still has in its old packs."""
    store = Count(MemoryStore())
    with es.Checkpointer(store, "run") as ckpt:
        for step in (10, 20):
            ckpt.save(step, state_at(step)).wait()
        large = {**state_at(20), "more": np.arange(HEAD // 2, dtype=np.float32)}
        ckpt.save(30, large).wait()
        repo = open_repository(store, create=False)
        bury_all(repo, *checkpoints(repo, "run")[1:])
        sweep(repo, None, grace_s=0)
        assert [one.step for one, _ in repack(repo).rewritten] == [30]
        sweep(repo, None, grace_s=0)
        store.clear()
        ckpt.save(40, large).wait()
        assert FROZEN < store.bytes_in < FROZEN + 20_000, "what moved, and not the other 2,700,000 bytes"
        store.clear()
        ckpt.save(50, {**large, "step": 50}).wait()
        assert store.bytes_in < 20_000
    loaded = es.load(store, "run", step=40)
    same({**loaded, "step": 20}, 20)
    assert np.array_equal(loaded["more"], large["more"])
    assert undecided(repo, "run") == []


def rewritten(store) -> int:
    """Repack and sweep, as another process; how many checkpoints were written anew."""
    repo = open_repository(store, create=False)
    done = repack(repo)
    sweep(repo, None, grace_s=0)
    return len(done.rewritten)


def test_a_restore_beside_a_repack_and_a_sweep():
    """Whatever the moment, the newest step comes back, from the old checkpoint or from the one in its place."""
    moments = 1
    while True:
        store = thin(MemoryStore()).store
        done: list[int] = []
        beside = Beside(store, moments, lambda store=store, done=done: done.append(rewritten(store)))
        fresh = state_at(0)
        with es.Checkpointer(beside, "run") as ckpt:
            assert ckpt.restore(fresh) == 40, moments
        same(fresh, 40)
        if not done:
            break
        moments += 1
    assert moments > 10
