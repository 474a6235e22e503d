"""Where the bytes are: what a list of the packs shows, dealt out to runs and to what becomes of them."""

from __future__ import annotations

import pytest

from everstep.errors import RunNotFound
from everstep.repository.attempts import claim
from everstep.repository.fork import fork
from everstep.repository.keys import manifest_key, plan_key
from everstep.repository.saves import abort, begin
from everstep.retention.space import RunSpace, Space, space
from everstep.store.count import Count
from everstep.store.memory import MemoryStore
from tests.repository.worlds import overwrite, plant, put, started, write_pack
from tests.retention.thin import SHARED, bury_all, chain, leaves, thinned, total

HEADER = 4096
HEAD = 64_000


def row(found: Space, run: str = "run") -> RunSpace:
    """The run's line."""
    return next(one for one in found.runs if one.run == run)


def check_sum(found: Space, store) -> None:
    """What the parts add up to is what a list shows."""
    assert found.total == total(store) == found.stored + found.waiting + found.under_way + found.garbage
    assert found.garbage - found.orphans == sum(one.garbage for one in found.runs)


def test_a_run_alone_has_its_packs_for_itself():
    """Logical bytes are those of all checkpoints, stored ones the packs, each once."""
    repo, attempt = started()
    chain(repo, attempt, (1, 2))
    found = space(repo)
    assert row(found).checkpoints == 2
    assert row(found).logical == 2 * (HEAD + len(SHARED))
    assert row(found).stored == row(found).alone == 2 * (HEADER + HEAD) + len(SHARED)
    assert row(found).shared == row(found).waiting == row(found).garbage == 0
    check_sum(found, repo.store)


def test_what_a_fork_needs_too_is_shared_and_freed_by_neither():
    """Pruning a run whole frees only the packs that it alone needs."""
    repo, attempt = started()
    first, _ = chain(repo, attempt, (1, 2))
    fork(repo, first, "child")
    put(repo, claim(repo, "child", owner="test"), 2, {"other": b"o" * 999})
    found = space(repo)
    both = HEADER + HEAD + len(SHARED)
    assert row(found).shared == row(found, "child").shared == found.shared == both
    assert row(found).alone == HEADER + HEAD
    assert row(found, "child").alone == HEADER + 999
    assert found.stored == both + 2 * HEADER + HEAD + 999
    check_sum(found, repo.store)


def test_what_waits_what_is_under_way_and_what_is_left_over():
    """Packs of pruned checkpoints wait, those of undecided saves are under way, all others are garbage."""
    repo, attempt = started()
    made = chain(repo, attempt, (1, 2))
    bury_all(repo, made[0])
    write_pack(repo.store, begin(repo, attempt, 3), 0, [b"under way"])
    given_up = begin(repo, attempt, 4)
    write_pack(repo.store, given_up, 0, [b"given up"])
    abort(repo, given_up, "test")
    swept = put(repo, attempt, 5, {"x": b"swept"})
    bury_all(repo, swept)
    repo.store.delete(plan_key("run", swept.save))
    plant(repo.store, f"packs/00/s{7:016d}-a{1:08d}-{'0' * 32}/0-0.safetensors", b"of nobody")
    plant(repo.store, "packs/readme.txt", b"none of ours")
    found = space(repo)
    assert found.stored == row(found).stored == 2 * (HEADER + HEAD) + len(SHARED)
    assert found.waiting == row(found).waiting == 0, "step 2 still needs the pack of step 1"
    assert found.under_way == row(found).under_way == HEADER + len(b"under way")
    assert row(found).garbage == 2 * HEADER + len(b"given up") + len(b"swept")
    assert found.orphans == len(b"of nobody")
    assert found.total == total(repo.store) - len(b"none of ours")
    bury_all(repo, made[1])
    found = space(repo)
    assert (found.stored, row(found).waiting) == (0, 2 * (HEADER + HEAD) + len(SHARED))
    assert found.total == found.waiting + found.under_way + found.garbage


def test_a_look_inside_tells_what_is_dead_in_live_packs():
    """Of step 10's pack, one small leaf is needed: the rest is dead, and a repack would free it."""
    repo, _, _ = thinned()
    assert space(repo).dead is None
    found = space(repo, deep=True)
    assert found.dead == found.sparse == row(found).dead == HEAD
    check_sum(found, repo.store)


def test_a_pack_that_is_mostly_needed_is_no_work_for_a_repack():
    """Dead bytes of a pack of which half or more is needed are told, and not promised."""
    repo, attempt = started()
    first = put(repo, attempt, 1, {"a": b"a" * 600, "b": b"b" * 600})
    put(repo, attempt, 2, {"a": b"a" * 600}, bases=(first,))
    bury_all(repo, first)
    found = space(repo, deep=True)
    assert (found.dead, found.sparse) == (600, 0)


def test_what_it_would_be_without_some_checkpoints():
    """Reckoned as pruned: what a repack after that prune would free, told beforehand."""
    repo, attempt = started()
    made = chain(repo, attempt, (10, 20, 30))
    before = space(repo, deep=True, without=made[:2])
    assert (before.sparse, before.waiting) == (HEAD, HEADER + HEAD)
    bury_all(repo, *made[:2])
    assert space(repo, deep=True) == before


def test_one_run_is_looked_at_with_those_it_may_share_with():
    """With a run, the totals are of it and its kin; other runs are not read."""
    store = Count(MemoryStore())
    repo, attempt = started(store)
    first, _ = chain(repo, attempt, (1, 2))
    fork(repo, first, "child")
    other = put(repo, claim(repo, "other", owner="test"), 1, {"x": b"x" * 100})
    store.clear()
    found = space(repo, "child")
    assert {one.run for one in found.runs} == {"run", "child"}
    assert row(found, "child").shared == HEADER + HEAD + len(SHARED)
    assert found.total == total(store) - HEADER - 100
    assert not [key for _, key in store.log if str(other.save) in key]
    with pytest.raises(RunNotFound):
        space(repo, "nobody")


def test_it_costs_one_list_of_packs_and_two_requests_for_each_checkpoint():
    """No index and no pack is read; a look inside reads the indexes of those that need packs of pruned ones."""
    store = Count(MemoryStore())
    repo, _, _ = thinned(store)
    store.clear()
    space(repo)
    assert store.log.count(("list", "packs/")) == 1
    assert not [key for verb, key in store.log if verb == "get" and "/rank-" in key]
    assert len([key for verb, key in store.log if verb == "get" and "/manifest." in key]) == 4
    assert store.calls["get_range"] == store.calls["create"] == store.calls["delete"] == 0
    store.clear()
    space(repo, deep=True)
    assert len([key for verb, key in store.log if verb == "get" and "/rank-" in key]) == 2
    assert store.calls["get_range"] == 1


def test_damage_is_told_and_the_rest_added_up():
    """A checkpoint whose manifest is damaged keeps the packs that it wrote; a pack that is gone is named."""
    repo, attempt = started()
    first, second = chain(repo, attempt, (1, 2))
    overwrite(repo.store, manifest_key("run", second.save, second.manifest), b"{}")
    found = space(repo)
    assert [error.code for error in found.damage] == ["E-CORRUPT-OBJECT"]
    assert found.stored == total(repo.store) == found.total
    gone = next(one.key for one in repo.store.list("packs/") if str(first.save) in one.key)
    repo.store.delete(gone)
    assert space(repo).missing == (gone,)
    assert leaves(1)["head"] != leaves(2)["head"]
