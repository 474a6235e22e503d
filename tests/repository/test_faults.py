"""Every call of every operation fails in every way: the last committed checkpoint always reads."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from everstep.errors import EverstepError, StoreUnavailable
from everstep.repository.attempts import claim
from everstep.repository.catalogue import checkpoints, newest
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.copying import copy
from everstep.repository.fence import find_attempt
from everstep.repository.fork import fork
from everstep.repository.opening import open_repository
from everstep.repository.repository import Repository
from everstep.repository.saves import begin, write_index
from everstep.repository.tags import find_tag, set_tag, tags
from everstep.repository.verify import verify
from everstep.store.fault import Crashed, Fault, Injection, Kind, Scripted
from everstep.store.memory import MemoryStore
from tests.repository.worlds import content, keys, last, make_index, put, reopened, started, world

OLD = {"w": b"weights" * 10, "b": b"old"}
NEW = {"w": b"weights" * 10, "b": b"new"}


@dataclass
class Scene:
    """A repository with a checkpoint at step 1, and an empty store for copies."""

    repo: Repository
    other: Repository
    first: Checkpoint
    second: Checkpoint


def scene() -> Scene:
    """A new one."""
    repo, attempt = started()
    elsewhere = put(repo, claim(repo, "elsewhere", owner="test"), 5, OLD)
    return Scene(repo=repo, other=world(), first=put(repo, attempt, 1, OLD), second=elsewhere)


def save(at: Scene, repo: Repository) -> None:
    """A save with a base."""
    made = put(repo, find_attempt(at.repo, "run", 1), 2, NEW, bases=[at.first])
    assert last(at.repo) == made
    assert content(at.repo, made) == NEW


def finish(at: Scene, repo: Repository) -> None:
    """A claim that finds a complete save of the older attempt."""
    under_way = begin(at.repo, find_attempt(at.repo, "run", 1), 2)
    write_index(at.repo, under_way, make_index(under_way, NEW, store=at.repo.store))
    claim(repo, "run", owner="next")
    assert content(at.repo, last(at.repo)) == NEW


def give_up(at: Scene, repo: Repository) -> None:
    """A claim that finds an incomplete one."""
    begin(at.repo, find_attempt(at.repo, "run", 1), 2)
    claim(repo, "run", owner="next")
    assert last(at.repo) == at.first


def forked(at: Scene, repo: Repository) -> None:
    """A fork."""
    assert fork(repo, at.first, "child") == last(at.repo, "child")


def tag(at: Scene, repo: Repository) -> None:
    """A name that another checkpoint has is moved."""
    if not tags(at.repo):
        set_tag(at.repo, "best", at.second)
    set_tag(repo, "best", at.first, force=True)
    assert find_tag(at.repo, "best").save == str(at.first.save)


def copy_out(at: Scene, repo: Repository) -> None:
    """A copy whose source fails."""
    assert copy(repo, [at.first], at.other) == (last(at.other),)


def copy_in(at: Scene, repo: Repository) -> None:
    """A copy whose destination fails."""
    there = reopened(at.other, repo.store)
    assert copy(at.repo, [at.first], there) == (last(at.other),)


OPERATIONS: list[Callable[[Scene, Repository], None]] = [
    save,
    finish,
    give_up,
    forked,
    tag,
    copy_out,
    copy_in,
]
AGAIN = (forked, tag, copy_out, copy_in)
KINDS = [
    Kind.CRASH_BEFORE,
    Kind.CRASH_AFTER,
    Kind.BEFORE,
    Kind.AFTER,
    Kind.REPEATED,
    Kind.LATE,
    Kind.SHORT,
    Kind.TAKEN,
    Kind.FULL,
    Kind.DENIED,
]
MOST_CALLS = 60


def struck(operation, at: Scene, injection: Injection) -> tuple[str, Fault]:
    """Run the operation with one fault; the error, or nothing when it succeeded."""
    inner = at.other.store if operation is copy_in else at.repo.store
    store = Fault(inner, Scripted(injection))
    try:
        operation(at, reopened(at.repo, store, salt=2))
    except (EverstepError, Crashed) as error:
        return str(error), store
    return "", store


def check(at: Scene) -> None:
    """The checkpoint of step 1 is there, and whatever else is there reads."""
    found = checkpoints(at.repo, "run")
    assert at.first.save in [one.save for one in found]
    for one in found:
        assert verify(at.repo, one) == []
        assert content(at.repo, one) == (OLD if one.step == 1 else NEW)
    assert last(at.repo).step == found[0].step


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name.lower())
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_any_call_may_fail_in_any_way(operation, kind):
    """Afterwards a new attempt claims and goes on; what is late arrives before that, or after it."""
    for late in ("before", "after") if kind is Kind.LATE else ("before",):
        for n in range(1, MOST_CALLS):
            at = scene()
            error, store = struck(operation, at, Injection(kind=kind, at=n))
            if store.calls < n:
                assert not error
                break
            if late == "before":
                store.land()
            check(at)
            claim(at.repo, "run", owner="survivor")
            settled = newest(at.repo, "run")
            store.land()
            check(at)
            assert newest(at.repo, "run") == settled
            if operation in AGAIN:
                operation(at, at.other if operation is copy_in else at.repo)
        else:
            pytest.fail("the operation makes more calls than the test tries")


@pytest.mark.parametrize("kind", [Kind.AFTER, Kind.REPEATED], ids=lambda kind: kind.name.lower())
@pytest.mark.parametrize("operation", [finish, give_up, forked, tag, copy_in], ids=lambda op: op.__name__)
def test_a_create_whose_answer_is_lost_or_comes_twice_succeeds(operation, kind):
    """Every create is read back, and what stands is one's own: nothing fails, nothing is there twice.

    But for the second create of an attempt's record: it asks whether the store refuses, and no answer is none.
    """
    for n in range(1, MOST_CALLS):
        at = scene()
        error, store = struck(operation, at, Injection(kind=kind, at=n, verb="create"))
        assert not error or "/attempts/" in error, f"create {n}: {error}"
        if not store.injected:
            assert n > 1
            break


@pytest.mark.parametrize("kind", [Kind.AFTER, Kind.REPEATED], ids=lambda kind: kind.name.lower())
def test_a_save_whose_answers_are_lost_or_come_twice_commits_once(kind):
    """Plan, index, manifest and record; the pack's answer is the transfer room's matter."""
    for n in (1, 3, 4, 5):
        at = scene()
        error, store = struck(save, at, Injection(kind=kind, at=n, verb="create"))
        assert (error, store.injected[kind]) == ("", 1)
        assert [one.step for one in checkpoints(at.repo, "run")] == [2, 1]


def test_a_commit_whose_outcome_cannot_be_proved_is_no_success():
    """The record's answer is lost and the read-back fails: an error, though the record stands."""

    class Deaf(MemoryStore):
        armed = False

        def create(self, key, body):
            super().create(key, body)
            if "/commits/" in key and self.armed:
                raise StoreUnavailable(key)

        def get(self, key, limit):
            if "/commits/" in key and self.armed:
                raise StoreUnavailable(key)
            return super().get(key, limit)

    store = Deaf()
    repo, attempt = started(store)
    store.armed = True
    with pytest.raises(StoreUnavailable):
        put(repo, attempt, 1, OLD)
    store.armed = False
    assert last(repo).step == 1


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name.lower())
def test_a_fresh_store_is_made_through_any_fault(kind):
    """Whatever failed, the next opening makes it or finds it."""
    for n in range(1, MOST_CALLS):
        inner = MemoryStore()
        store = Fault(inner, Scripted(Injection(kind=kind, at=n)))
        with contextlib.suppress(EverstepError, Crashed):
            open_repository(store, create=True)
        made = open_repository(inner, create=True)
        store.land()
        assert open_repository(inner, create=False).record == made.record
        assert keys(inner) == ["everstep.json"]
        if store.calls < n:
            break
