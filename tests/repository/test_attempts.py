"""The start of an attempt."""

from __future__ import annotations

import threading

import pytest

from everstep.errors import (
    AlreadyExists,
    ConditionIgnored,
    Fenced,
    InvalidName,
    ObjectNotFound,
    RunNotFound,
)
from everstep.repository import keys as k
from everstep.repository.attempts import attempts, check_fence, claim, find_attempt
from everstep.repository.catalogue import newest
from everstep.repository.decisions import read_decision
from everstep.repository.opening import open_repository
from everstep.repository.saves import begin, commit, write_index
from everstep.store.memory import MemoryStore
from tests.repository.worlds import content, keys, last, make_index, no_sleep, overwrite, put, started, world

LEAVES = {"w": b"weights"}


class Overwriting(MemoryStore):
    """A store that ignores the condition, as some servers do."""

    def create(self, key, body):
        self.delete(key)
        super().create(key, body)


def test_attempts_are_numbered_from_one():
    """Each claim gets the next number."""
    repo = world()
    assert [claim(repo, "run", owner="me").number for _ in range(3)] == [1, 2, 3]
    assert [record.attempt for record in attempts(repo, "run")] == [1, 2, 3]


def test_fault_10_two_launches_claim_together():
    """Eight threads claim at once: eight numbers, and only the highest is not fenced."""
    repo = world()
    ready = threading.Barrier(8)
    made = []

    def launch():
        ready.wait()
        made.append(claim(repo, "run", owner="me"))

    threads = [threading.Thread(target=launch) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made.sort(key=lambda attempt: attempt.number)
    assert [attempt.number for attempt in made] == list(range(1, 9))
    for attempt in made[:-1]:
        with pytest.raises(Fenced, match=f"attempt {attempt.number} .* attempt 8"):
            check_fence(repo, attempt)
    check_fence(repo, made[-1])


def test_a_launcher_may_give_the_number():
    """Any number above those that were claimed."""
    repo = world()
    assert claim(repo, "run", owner="me", number=5).number == 5
    assert claim(repo, "run", owner="me").number == 6
    assert find_attempt(repo, "run", 5).owner == "me"


@pytest.mark.parametrize("number", [4, 5])
def test_a_number_that_is_not_above_all_others_is_refused(number):
    """A launcher that does not count up would let two launches believe that they own the run."""
    repo = world()
    claim(repo, "run", owner="me", number=5)
    with pytest.raises(Fenced, match=f"attempt {number} .* attempt 5"):
        claim(repo, "run", owner="me", number=number)


@pytest.mark.parametrize("number", [0, -1, 10**8])
def test_a_number_that_no_key_can_hold_is_refused(number):
    """Attempts have eight digits, from 1 on."""
    with pytest.raises(InvalidName):
        claim(world(), "run", owner="me", number=number)


def test_an_attempt_that_nobody_claimed_is_not_found():
    """A rank that is too early gets an error, not an attempt."""
    with pytest.raises(RunNotFound):
        find_attempt(world(), "run", 1)


def test_fault_2_a_complete_save_of_an_older_attempt_is_finished():
    """Killed between the last index and the commit record: the next attempt commits it, and resumes there."""
    repo, old = started(ranks=2)
    save = begin(repo, old, 9)
    for rank in range(2):
        write_index(repo, save, make_index(save, LEAVES, rank=rank, store=repo.store))
    claim(repo, "run", owner="next")
    assert last(repo).step == 9
    assert content(repo, last(repo)) == LEAVES


def test_fault_1_an_incomplete_save_of_an_older_attempt_is_given_up():
    """The record names the attempt that decided and the ranks that were missing; older steps are intact."""
    repo, old = started(ranks=3)
    put(repo, old, 1, LEAVES)
    save = begin(repo, old, 9)
    write_index(repo, save, make_index(save, LEAVES, rank=1, store=repo.store))
    claim(repo, "run", owner="next")
    record = read_decision(repo, "run", save.id)
    assert (record.state, record.why) == ("aborted", "attempt 2 took over: no index of rank 0, 2")
    assert last(repo).step == 1


@pytest.mark.parametrize("part", ["plan", "index"])
def test_a_damaged_save_of_an_older_attempt_is_given_up(part):
    """What cannot be proved complete is not committed, and does not stop the new attempt."""
    repo, old = started()
    save = begin(repo, old, 9)
    write_index(repo, save, make_index(save, LEAVES, store=repo.store))
    key = keys(repo.store, f"runs/run/{part}s/" if part == "plan" else k.save_prefix("run", save.id))[0]
    overwrite(repo.store, key, b"damaged")
    claim(repo, "run", owner="next")
    assert read_decision(repo, "run", save.id).state == "aborted"


def test_a_plan_that_is_swept_meanwhile_is_given_up():
    """An undecided save without a plan cannot be finished."""
    repo, old = started()
    save = begin(repo, old, 9)
    write_index(repo, save, make_index(save, LEAVES, store=repo.store))
    repo.store.delete(keys(repo.store, k.save_prefix("run", save.id))[0])
    claim(repo, "run", owner="next")
    assert read_decision(repo, "run", save.id).state == "aborted"


def test_the_saves_of_a_newer_attempt_are_left_alone():
    """An attempt that is slow to start decides nothing about its successor's saves."""
    repo = world()
    newer = claim(repo, "run", owner="newer", number=7)
    save = begin(repo, newer, 9)
    slow = find_attempt(repo, "run", 7)
    slow = type(slow)(run="run", number=3, id="slow", owner="slow", world=1)
    from everstep.repository.settle import settle

    settle(repo, slow)
    write_index(repo, save, make_index(save, LEAVES, store=repo.store))
    assert commit(repo, save, timeout_s=0, sleep=no_sleep).step == 9


def test_a_fresh_store_that_ignores_the_condition_is_refused():
    """Nothing is left behind in it."""
    store = Overwriting()
    with pytest.raises(ConditionIgnored):
        open_repository(store, create=True)
    assert keys(store) == []


def test_a_store_that_begins_to_ignore_the_condition_is_refused_at_the_next_claim():
    """The attempt's own record is written twice; no checkpoint is lost."""
    good, attempt = started()
    made = put(good, attempt, 1, LEAVES)
    bad = Overwriting()
    for key in keys(good.store):
        bad.create(key, good.store.get(key, 10**6))
    repo = open_repository(bad, create=True)
    with pytest.raises(ConditionIgnored):
        claim(repo, "run", owner="next")
    assert newest(repo, "run") == made


def test_a_reader_never_writes():
    """Opening a place that is no store, to read, says so and leaves it empty."""
    store = MemoryStore()
    with pytest.raises(ObjectNotFound, match=r"no everstep store"):
        open_repository(store, create=False)
    assert keys(store) == []


def test_two_processes_that_make_a_store_at_once_make_one():
    """The second one reads what the first one wrote."""
    store = MemoryStore()
    first = open_repository(store, create=True)

    class Late(MemoryStore):
        """Does not see the record at first, as a process that looked too early."""

        looked = False

        def get(self, key, limit):
            if not self.looked:
                self.looked = True
                raise ObjectNotFound(key)
            return store.get(key, limit)

        def create(self, key, body):
            store.create(key, body)

    assert open_repository(Late(), create=True).record == first.record


def test_a_world_without_ranks_is_refused():
    """A save of no ranks would be complete at once."""
    with pytest.raises(InvalidName):
        claim(world(), "run", owner="me", world=0)


def test_a_claim_never_overwrites_an_attempt():
    """The record of an attempt is what its first claim wrote."""
    repo, attempt = started()
    before = repo.store.get(k.attempt_key("run", 1), 10**6)
    with pytest.raises(AlreadyExists):
        repo.store.create(k.attempt_key("run", attempt.number), b"{}")
    claim(repo, "run", owner="next")
    assert repo.store.get(k.attempt_key("run", 1), 10**6) == before


@pytest.mark.parametrize("number", [None, 1])
def test_a_number_that_another_launch_takes_between_look_and_claim_is_not_ours(number):
    """The record's random id tells: the next number is tried, or with a launcher's number the claim is fenced."""

    class Racing(MemoryStore):
        armed = False

        def create(self, key, body):
            if self.armed and "/attempts/" in key:
                self.armed = False
                claim(repo, "run", owner="rival")
            super().create(key, body)

    store = Racing()
    repo = world(store)
    store.armed = True
    if number is None:
        assert claim(repo, "run", owner="me").number == 2
        assert find_attempt(repo, "run", 1).owner == "rival"
    else:
        with pytest.raises(Fenced, match="attempt 1 was claimed before"):
            claim(repo, "run", owner="me", number=number)
