"""A new run from a checkpoint of another."""

from __future__ import annotations

import pytest

from everstep.errors import CheckpointPruned, UsageError
from everstep.repository import keys as k
from everstep.repository.attempts import claim
from everstep.repository.catalogue import find_run, newest, runs
from everstep.repository.fork import fork
from everstep.repository.reading import read_manifest
from everstep.repository.verify import verify
from everstep.store.count import Count
from everstep.store.memory import MemoryStore
from tests.repository.worlds import content, keys, last, plant, put, started

LEAVES = {"w": b"weights" * 1000, "b": b"bias"}


def test_a_fork_copies_no_bytes():
    """The new run has the step and the content; no pack was read or written."""
    store = Count(MemoryStore())
    repo, attempt = started(store)
    made = put(repo, attempt, 7, LEAVES, metrics={"loss": 0.5})
    store.clear()
    forked = fork(repo, made, "child")
    assert not [key for _, key in store.log if key.startswith("packs/")]
    assert store.bytes_in < 10_000
    assert (forked.run, forked.step, forked.bytes, forked.stored_bytes) == ("child", 7, made.bytes, 0)
    assert (forked.forked_from, forked.metrics) == (made.parent, {"loss": 0.5})
    assert content(repo, forked) == LEAVES
    assert find_run(repo, "child").parent == made.parent


def test_a_fork_of_many_ranks_has_as_many():
    """Each rank's index is made again."""
    repo, attempt = started(ranks=6)
    made = put(repo, attempt, 7, LEAVES)
    forked = fork(repo, made, "child")
    assert forked.world == 6
    assert [ref.rank for ref in read_manifest(repo, forked).indexes] == list(range(6))
    assert verify(repo, forked) == []


def test_a_fork_lives_on_when_its_parent_is_swept():
    """A sweep by the rules keeps what the fork's manifest lists, and deletes all else of the parent."""
    repo, attempt = started()
    base = put(repo, attempt, 6, LEAVES)
    made = put(repo, attempt, 7, LEAVES | {"b": b"other"}, bases=[base])
    forked = fork(repo, made, "child")
    live = set(read_manifest(repo, forked).packs)
    for dead in (base, made):
        plant(repo.store, k.tomb_key("run", dead.save), b"")
    for key in keys(repo.store, "packs/"):
        if key not in live:
            repo.store.delete(key)
    for key in keys(repo.store, "runs/run/saves/") + keys(repo.store, "runs/run/plans/"):
        repo.store.delete(key)
    assert newest(repo, "run") is None
    assert verify(repo, forked) == []
    assert content(repo, last(repo, "child")) == LEAVES | {"b": b"other"}


def test_the_plan_of_a_fork_pins_its_parent_before_the_tomb_is_looked_for():
    """So a prune beside it either sees the pin, or is seen."""
    store = Count(MemoryStore())
    repo, attempt = started(store)
    made = put(repo, attempt, 7, LEAVES)
    store.clear()
    fork(repo, made, "child")
    order = [key for _, key in store.log]
    plan = next(i for i, key in enumerate(order) if key.startswith("runs/child/plans/s"))
    tomb = next(i for i, key in enumerate(order) if key == k.tomb_key("run", made.save))
    index = next(i for i, key in enumerate(order) if "/rank-" in key and key.startswith("runs/child/"))
    assert plan < tomb < index


def test_a_parent_that_is_pruned_meanwhile_stops_the_fork():
    """The fork's save is given up, so that it pins nothing; the parent's pruning is told."""
    repo, attempt = started()
    made = put(repo, attempt, 7, LEAVES)
    plant(repo.store, k.tomb_key("run", made.save), b"")
    with pytest.raises(CheckpointPruned):
        fork(repo, made, "child")
    assert len(keys(repo.store, "runs/child/plans/")) == len(keys(repo.store, "runs/child/commits/")) == 1
    assert newest(repo, "child") is None


def test_a_fork_into_a_run_that_exists_is_refused():
    """Also into its own run, into a fork of another step, and into a fork that has saved since."""
    repo, attempt = started()
    made, other = put(repo, attempt, 7, LEAVES), put(repo, attempt, 8, LEAVES)
    forked = fork(repo, made, "child")
    with pytest.raises(UsageError, match="exists"):
        fork(repo, made, "run")
    with pytest.raises(UsageError, match="exists"):
        fork(repo, other, "child")
    assert fork(repo, made, "child") == forked
    put(repo, claim(repo, "child", owner="trains"), 9, LEAVES, bases=[forked])
    with pytest.raises(UsageError, match="exists"):
        fork(repo, made, "child")


def test_a_fork_of_a_fork():
    """Lineage is kept by name; the bytes are still the first run's."""
    repo, attempt = started()
    first = fork(repo, put(repo, attempt, 7, LEAVES), "child")
    second = fork(repo, first, "grandchild")
    assert second.forked_from == first.parent
    assert content(repo, second) == LEAVES
    assert [record.run for record in runs(repo)] == ["child", "grandchild", "run"]


def test_a_fork_goes_on_as_a_run_of_its_own():
    """Its next save refers to the parent's packs through the fork; the parent does not change."""
    repo, attempt = started()
    made = put(repo, attempt, 7, LEAVES)
    forked = fork(repo, made, "child")
    launch = claim(repo, "child", owner="trains")
    saved = put(repo, launch, 9, LEAVES | {"b": b"new"}, bases=[forked])
    assert launch.number == 2
    assert saved.stored_bytes == 3
    assert (last(repo, "child"), last(repo)) == (saved, made)
