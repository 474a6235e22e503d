"""The way of a save, from the plan to the checkpoint."""

from __future__ import annotations

from dataclasses import replace

import pytest

from everstep.errors import DisagreeingPlans, DuplicateRank, Fenced, SaveAborted, SaveFailed, SaveTimeout
from everstep.format.digests import digest_of
from everstep.repository import keys as k
from everstep.repository.attempts import claim, find_attempt
from everstep.repository.catalogue import newest
from everstep.repository.reading import read_manifest
from everstep.repository.saves import abort, announce, begin, commit, join, write_index
from everstep.store.count import Count
from everstep.store.memory import MemoryStore
from tests.repository.worlds import (
    PLAN,
    Clockwork,
    content,
    keys,
    last,
    make_index,
    no_sleep,
    plant,
    put,
    started,
)

LEAVES = {"w": b"weights" * 9, "b": b"bias", "empty": b""}


def test_a_save_becomes_a_checkpoint_that_reads_back():
    """What was saved is read back, with step, attempt, sizes and metrics."""
    repo, attempt = started()
    made = put(repo, attempt, 7, LEAVES, metrics={"loss": 0.25})
    found = last(repo)
    assert found == made
    assert (found.step, found.attempt, found.world, found.run) == (7, 1, 1, "run")
    assert found.bytes == found.stored_bytes == sum(map(len, LEAVES.values()))
    assert found.metrics == {"loss": 0.25}
    assert content(repo, found) == LEAVES


def test_a_save_writes_plan_pack_index_manifest_and_record_in_this_order():
    """The order is the proof, and nothing else is asked of the store: eight requests for a save without a base."""
    store = Count(MemoryStore())
    repo, attempt = started(store)
    store.clear()
    put(repo, attempt, 7, {"w": b"weights"})
    shape = [(verb, "/".join(key.split("/")[:1] + key.split("/")[2:3])) for verb, key in store.log]
    assert shape == [
        ("create", "runs/plans"),
        ("list", "runs/attempts"),
        ("create", f"packs/{last(repo).save}"),
        ("create", "runs/saves"),
        ("list", "runs/saves"),
        ("get", "runs/saves"),
        ("create", "runs/saves"),
        ("create", "runs/commits"),
    ]


def test_unchanged_chunks_of_a_base_are_not_stored_again():
    """A second save with one changed leaf refers to the first one's pack for the others."""
    repo, attempt = started()
    first = put(repo, attempt, 1, {"w": b"x" * 1000, "b": b"y"})
    second = put(repo, attempt, 2, {"w": b"x" * 1000, "b": b"z"}, bases=[first])
    assert second.stored_bytes == 1
    assert content(repo, second) == {"w": b"x" * 1000, "b": b"z"}
    assert read_manifest(repo, first).packs[0] in read_manifest(repo, second).packs


def test_fault_12_a_base_pruned_between_pick_and_check_is_dropped():
    """The new checkpoint then has all of its bytes itself."""
    repo, attempt = started()
    first = put(repo, attempt, 1, LEAVES)
    plant(repo.store, k.tomb_key("run", first.save))
    second = put(repo, attempt, 2, LEAVES, bases=[first])
    assert second.stored_bytes == second.bytes
    assert content(repo, second) == LEAVES
    assert not set(read_manifest(repo, first).packs) & set(read_manifest(repo, second).packs)


def test_the_plan_pins_its_bases_before_they_are_looked_at():
    """A prune between the pin and the look sees the pin: the look comes after the plan is there."""
    store = Count(MemoryStore())
    repo, attempt = started(store)
    first = put(repo, attempt, 1, LEAVES)
    store.clear()
    begin(repo, attempt, 2, bases=[first])
    assert [key.split("/")[2] for _, key in store.log] == ["plans", "attempts", "commits", "tombs"]


def test_a_base_that_cannot_be_read_is_dropped():
    """A damaged commit record proves nothing, so its save is no base."""
    repo, attempt = started()
    first = put(repo, attempt, 1, LEAVES)
    key = k.commit_key("run", first.save)
    repo.store.delete(key)
    assert begin(repo, attempt, 2, bases=[first]).bases == ()
    plant(repo.store, key, b"damaged")
    assert begin(repo, attempt, 3, bases=[first]).bases == ()


def test_an_index_that_refers_to_other_packs_without_a_base_is_refused():
    """Bytes are never referred to because they happen to be there."""
    repo, attempt = started()
    first = put(repo, attempt, 1, {"w": b"x" * 1000})
    save = begin(repo, attempt, 2)
    known = {digest_of(b"x" * 1000): (read_manifest(repo, first).packs[0], 4096, 1000)}
    with pytest.raises(SaveFailed, match="no base"):
        write_index(repo, save, make_index(save, {"w": b"x" * 1000}, known=known))


def test_fault_8_an_old_attempt_is_fenced_by_name():
    """A zombie can neither begin nor commit; the error names both attempts."""
    repo, old = started()
    save = begin(repo, old, 1)
    claim(repo, "run", owner="new")
    with pytest.raises(Fenced, match=r"attempt 1 .* attempt 2"):
        begin(repo, old, 2)
    write_index(repo, save, make_index(save, LEAVES, store=repo.store))
    with pytest.raises(Fenced, match=r"attempt 1 .* attempt 2"):
        commit(repo, save, timeout_s=0, sleep=no_sleep)
    assert newest(repo, "run") is None


def test_a_fenced_save_does_not_keep_its_bases_for_ever():
    """Its plan is decided at once: no later sweep must keep what it had pinned."""
    repo, old = started()
    claim(repo, "run", owner="new")
    with pytest.raises(Fenced):
        begin(repo, old, 2)
    plan = k.save_of_plan("run", keys(repo.store, "runs/run/plans/")[0])
    assert plan is not None
    assert keys(repo.store, "runs/run/commits/") == [k.commit_key("run", plan)]


def test_a_zombie_whose_save_was_finished_by_its_successor_is_told_of_success():
    """The same manifest stands: that is a commit, whoever wrote the record."""
    repo, old = started()
    save = begin(repo, old, 1)
    write_index(repo, save, make_index(save, LEAVES, store=repo.store))
    claim(repo, "run", owner="new")
    assert commit(repo, save, timeout_s=0, sleep=no_sleep) == last(repo)
    with pytest.raises(Fenced):
        begin(repo, old, 2)


def test_fault_9_one_rank_twice_with_different_bytes():
    """No commit, and both digests are named."""
    repo, attempt = started()
    save = begin(repo, attempt, 1)
    digests = [
        write_index(repo, save, make_index(save, {"w": body}, store=None)).digest for body in (b"a", b"b")
    ]
    with pytest.raises(DuplicateRank) as caught:
        commit(repo, save, timeout_s=0, sleep=no_sleep)
    assert all(digest in caught.value.message for digest in digests)
    assert newest(repo, "run") is None


def test_fault_9_one_rank_twice_with_the_same_bytes():
    """That is one commit."""
    repo, attempt = started()
    save = begin(repo, attempt, 1)
    index = make_index(save, LEAVES, store=repo.store)
    assert write_index(repo, save, index) == write_index(repo, save, index)
    made = commit(repo, save, timeout_s=0, sleep=no_sleep)
    assert commit(repo, save, timeout_s=0, sleep=no_sleep) == made
    assert len(keys(repo.store, "runs/run/commits/")) == 1


def test_fault_11_a_rank_that_never_comes_is_named():
    """The wait ends at the time-out, with the missing ranks; a virtual clock counts the seconds."""
    repo, attempt = started(ranks=5)
    save = begin(repo, attempt, 1)
    for rank in (0, 2, 4):
        write_index(repo, save, make_index(save, LEAVES, rank=rank))
    clock = Clockwork()
    with pytest.raises(SaveTimeout, match="rank 1, 3") as caught:
        commit(repo, save, timeout_s=30, sleep=clock.sleep, now=clock.now)
    assert caught.value.fields["missing"] == (1, 3)
    assert clock.seconds == 30
    assert newest(repo, "run") is None


def test_a_wait_for_ranks_ends_when_the_save_is_given_up():
    """Nobody waits for the time-out of a save that a newer attempt has aborted."""
    repo, attempt = started(ranks=2)
    save = begin(repo, attempt, 1)
    clock = Clockwork()

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if clock.seconds < 1:
            claim(repo, "run", owner="new")

    with pytest.raises(Fenced):
        commit(repo, save, timeout_s=3600, sleep=sleep, now=clock.now)
    assert clock.seconds < 5


def test_late_ranks_are_waited_for():
    """The commit comes as soon as the last rank has written its index."""
    repo, attempt = started(ranks=2)
    save = begin(repo, attempt, 1)
    write_index(repo, save, make_index(save, LEAVES, rank=0, store=repo.store))
    clock = Clockwork()

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        write_index(
            repo, save, make_index(save, LEAVES, rank=1, store=None if clock.waits > 1 else repo.store)
        )

    made = commit(repo, save, timeout_s=60, sleep=sleep, now=clock.now)
    assert made.world == 2
    assert clock.waits == 1


def test_a_rank_beyond_the_world_is_refused():
    """Both by its writer and, when it was written all the same, by the commit."""
    repo, attempt = started(ranks=2)
    save = begin(repo, attempt, 1)
    with pytest.raises(Exception, match="rank"):
        write_index(repo, save, make_index(save, LEAVES, rank=2))
    plant(repo.store, k.index_key("run", save.id, 2, digest_of(b"{}")))
    with pytest.raises(SaveFailed, match="rank 2 in a world of 2"):
        commit(repo, save, timeout_s=0, sleep=no_sleep)


def test_an_index_of_another_save_is_refused():
    """An index says which save it belongs to, and it must be this one."""
    repo, attempt = started()
    first, second = begin(repo, attempt, 1), begin(repo, attempt, 2)
    with pytest.raises(SaveFailed, match="cannot be part"):
        write_index(repo, second, make_index(first, LEAVES))


def test_ranks_with_different_plans_are_named():
    """The digest of the global plan must be the same in all indexes."""
    repo, attempt = started(ranks=3)
    save = begin(repo, attempt, 1)
    for rank in range(3):
        plan = digest_of(b"other" if rank == 1 else b"plan")
        write_index(repo, save, make_index(save, LEAVES, rank=rank, plan=plan))
    with pytest.raises(DisagreeingPlans, match=r"rank 0, 2 computed .*; rank 1 computed") as caught:
        commit(repo, save, timeout_s=0, sleep=no_sleep)
    assert caught.value.fields["ranks"] == ((0, 2), (1,))


def test_every_rank_that_commits_makes_the_same_manifest():
    """Two ranks commit one save: one manifest, one record, and both succeed."""
    repo, attempt = started(ranks=2)
    save = begin(repo, attempt, 1)
    for rank in range(2):
        write_index(repo, save, make_index(save, LEAVES, rank=rank, store=repo.store))
    other = join(find_attempt(repo, "run", 1), announce(save, plan_digest=PLAN))
    assert commit(repo, save, timeout_s=0, sleep=no_sleep) == commit(repo, other, timeout_s=0, sleep=no_sleep)
    assert len(keys(repo.store, f"{k.save_prefix('run', save.id)}manifest")) == 1


def test_a_rank_that_joins_takes_the_bases_that_rank_0_found_standing():
    """Those that it knows itself; what rank 0 dropped is dropped on all ranks, and nothing is asked of the store."""
    store = Count(MemoryStore())
    repo, attempt = started(store, ranks=2)
    first, second = put(repo, attempt, 1, LEAVES), put(repo, attempt, 2, LEAVES)
    plant(repo.store, k.tomb_key("run", second.save))
    save = begin(repo, attempt, 3, bases=[first, second])
    told = announce(save, plan_digest=PLAN)
    store.clear()
    joined = join(attempt, told, bases=[second, first])
    assert (joined.id, joined.plan, joined.bases) == (save.id, save.plan, (first,))
    assert join(attempt, told).bases == ()
    assert store.log == []


def test_a_save_of_another_attempt_is_not_joined():
    """Nor one of another run or another number of ranks."""
    repo, attempt = started(ranks=2)
    told = announce(begin(repo, attempt, 3), plan_digest=PLAN)
    for other in ({"number": 2}, {"run": "other"}, {"world": 3}):
        with pytest.raises(SaveFailed, match="announced save"):
            join(replace(attempt, **other), told)


def test_an_aborted_save_cannot_be_committed():
    """The first decision stands, and its reason is told."""
    repo, attempt = started()
    save = begin(repo, attempt, 1)
    write_index(repo, save, make_index(save, LEAVES, store=repo.store))
    assert abort(repo, save, "disk full").state == "aborted"
    with pytest.raises(SaveAborted, match="disk full"):
        commit(repo, save, timeout_s=0, sleep=no_sleep)


def test_a_committed_save_cannot_be_aborted():
    """The record that stands is returned instead."""
    repo, attempt = started()
    save = begin(repo, attempt, 1)
    write_index(repo, save, make_index(save, LEAVES, store=repo.store))
    commit(repo, save, timeout_s=0, sleep=no_sleep)
    assert abort(repo, save, "changed my mind").state == "committed"
    assert last(repo).step == 1


def test_two_saves_of_one_step_do_not_touch_each_other():
    """Each has 128 random bits in its name; both become checkpoints."""
    repo, attempt = started()
    first, second = put(repo, attempt, 5, {"w": b"one"}), put(repo, attempt, 5, {"w": b"two"})
    assert (content(repo, first), content(repo, second)) == ({"w": b"one"}, {"w": b"two"})
