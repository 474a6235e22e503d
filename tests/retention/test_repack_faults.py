"""A repack that is cut off after any call, whose answers are lost, or that others interfere with."""

from __future__ import annotations

import contextlib

import pytest

from everstep.errors import EverstepError
from everstep.format.ids import parse_save
from everstep.repository.attempts import claim
from everstep.repository.catalogue import checkpoints, find, newest, resolve
from everstep.repository.fork import fork
from everstep.repository.repository import Repository
from everstep.repository.saves import begin, commit, write_index
from everstep.repository.settle import undecided
from everstep.repository.tags import set_tag
from everstep.repository.tombs import tombed
from everstep.repository.verify import verify
from everstep.retention.repack import repack
from everstep.retention.space import space
from everstep.retention.sweep import sweep
from everstep.store.count import Count
from everstep.store.fault import Crashed, Fault, Injection, Kind, Scripted
from everstep.store.memory import MemoryStore
from tests.repository.worlds import content, known_chunks, make_index, no_sleep, put, reopened
from tests.retention.beside import Before, Beside
from tests.retention.thin import bury_all, digests, leaves, thinned, total


def _family() -> Repository:
    repo, _, made = thinned(keep=3)
    fork(repo, made[1], "child")
    set_tag(repo, "best", made[2])
    sweep(repo, None, grace_s=0)
    return repo


FAMILY = _family()


def family() -> Repository:
    """Step 10 is pruned and swept; 20 to 40 and a fork of 20 need a leaf of it; step 30 has a tag."""
    store = MemoryStore()
    for found in FAMILY.store.list(""):
        store.create(found.key, FAMILY.store.get(found.key, found.size))
    return reopened(FAMILY, store, salt=5)


def check(repo: Repository) -> None:
    """Every checkpoint is there once, with its bytes, under all its names."""
    assert [(one.step, one.tags) for one in checkpoints(repo, "run")] == [(40, ()), (30, ("best",)), (20, ())]
    assert [one.step for one in checkpoints(repo, "child")] == [20]
    check_steps(repo)
    assert content(repo, resolve(repo, "tag:best")) == leaves(30)
    assert newest(repo, "run") == find(repo, "run")


def check_steps(repo: Repository) -> None:
    """Every step restores bit for bit."""
    for step in (20, 30, 40):
        assert content(repo, find(repo, "run", step)) == leaves(step)
    assert content(repo, resolve(repo, "child")) == leaves(20)


def finish(repo: Repository) -> int:
    """Repack and sweep to the end; the store then has everything once, and nothing else. Gives its bytes."""
    repack(repo)
    sweep(repo, None, grace_s=0)
    sweep(repo, None, grace_s=0)
    check(repo)
    live = [*checkpoints(repo, "run"), *checkpoints(repo, "child")]
    assert all(len(places) == 1 for places in digests(repo, *live).values())
    assert [damage for one in live for damage in verify(repo, one)] == []
    assert undecided(repo, "run") == undecided(repo, "child") == []
    found = space(repo, deep=True)
    assert (found.waiting, found.under_way, found.garbage, found.sparse) == (0, 0, 0, 0)
    return total(repo.store)


def calls(verb: str = "") -> int:
    """How many calls a repack makes."""
    repo = family()
    store = Count(repo.store)
    repack(reopened(repo, store))
    return store.calls[verb] if verb else store.calls.total()


EVERY = range(1, calls() + 1)
SOME = range(1, calls() + 1, 7)
MOMENTS = pytest.mark.parametrize("moments", [SOME, pytest.param(EVERY, marks=pytest.mark.more)])


@pytest.mark.parametrize("kind", [Kind.CRASH_BEFORE, Kind.CRASH_AFTER])
def test_cut_off_at_any_write_and_done_again(kind):
    """At each moment all checkpoints are whole; the next repack and a sweep end with the same bytes as without."""
    expected = finish(family())
    for at in range(1, calls("create") + 1):
        repo = family()
        script = Scripted(Injection(kind=kind, at=at, verb="create"))
        with pytest.raises(Crashed):
            repack(reopened(repo, Fault(repo.store, script)))
        check(repo)
        assert finish(reopened(repo, repo.store, salt=2)) == expected, at


@MOMENTS
@pytest.mark.parametrize("kind", [Kind.AFTER, Kind.UNAVAILABLE, Kind.REPEATED, Kind.TAKEN])
def test_any_call_that_fails(kind, moments):
    """It is done, or says why not; nothing is lost either way, and the next repack ends it."""
    for at in moments:
        repo = family()
        with contextlib.suppress(EverstepError):
            repack(reopened(repo, Fault(repo.store, Scripted(Injection(kind=kind, at=at)))))
        check(repo)
        finish(reopened(repo, repo.store, salt=2))


@pytest.mark.parametrize("kind", [Kind.FLIPPED, Kind.TORN])
def test_a_store_that_damages_what_it_is_given(kind):
    """Whatever object of a repack is damaged without a word: every step still restores, before and after a sweep."""
    for at in range(1, calls("create") + 1):
        repo = family()
        script = Scripted(Injection(kind=kind, at=at, verb="create"))
        with contextlib.suppress(EverstepError):
            repack(reopened(repo, Fault(repo.store, script)))
        check_steps(repo)
        with contextlib.suppress(EverstepError):
            sweep(repo, None, grace_s=0)
        check_steps(repo)


@MOMENTS
def test_a_sweep_at_any_moment(moments):
    """Another process sweeps the whole store after each call of a repack: nothing that is needed goes."""
    for at in moments:
        repo = family()
        store = Beside(repo.store, at, lambda repo=repo: sweep(repo, None, grace_s=0))
        repack(reopened(repo, store))
        check(repo)
        finish(reopened(repo, repo.store, salt=2))


@MOMENTS
def test_another_repack_at_any_moment(moments):
    """Of two at once one may give up; every content is there once in the end."""
    for at in moments:
        repo = family()
        other = reopened(repo, repo.store, salt=2)
        store = Beside(repo.store, at, lambda other=other: repack(other))
        repack(reopened(repo, store))
        check(repo)
        finish(reopened(repo, repo.store, salt=3))


@MOMENTS
def test_a_new_launch_at_any_moment(moments):
    """A launch that begins meanwhile may give up the save under way; the repack ends there, and nothing is lost."""
    gave_up = 0
    for at in moments:
        repo = family()
        store = Beside(repo.store, at, lambda repo=repo: claim(repo, "run", owner="launch"))
        done = repack(reopened(repo, store))
        gave_up += bool(done.gave_up)
        check(repo)
        finish(reopened(repo, repo.store, salt=2))
    assert gave_up > 0


@MOMENTS
def test_a_prune_at_any_moment(moments):
    """A prune of step 20 meanwhile, under whatever save it stands then: it is gone in the end, and no other step."""
    for at in moments:
        repo = family()
        store = Beside(repo.store, at, lambda repo=repo: bury_all(repo, find(repo, "run", 20)))
        repack(reopened(repo, store))
        again = reopened(repo, repo.store, salt=2)
        repack(again)
        sweep(again, None, grace_s=0)
        assert [one.step for one in checkpoints(again, "run")] == [40, 30]
        assert content(again, find(again, "run", 30)) == leaves(30)
        assert content(again, resolve(again, "child")) == leaves(20)
        assert space(again, deep=True).sparse == 0


def test_a_save_under_way_whose_base_is_replaced():
    """Begun before a repack with the newest as its base, and committed after it and a sweep: it is whole."""
    repo = family()
    base = find(repo, "run", 40)
    attempt = claim(repo, "run", owner="launch")
    save = begin(repo, attempt, 50, bases=(base,))
    index = make_index(save, leaves(50), known=known_chunks(repo, save.bases), store=repo.store)
    repack(repo)
    sweep(repo, None, grace_s=0)
    write_index(repo, save, index)
    made = commit(repo, save, timeout_s=0, sleep=no_sleep)
    sweep(repo, None, grace_s=0)
    assert verify(repo, made) == []
    assert content(repo, made) == leaves(50)
    late = put(repo, attempt, 60, leaves(60), bases=(base,))
    assert not [key for key in known_chunks(repo, [late]).values() if str(base.save) in key[0]]
    repack(repo)
    sweep(repo, None, grace_s=0)
    assert content(repo, find(repo, "run", 50)) == leaves(50)


def test_what_was_donated_counts_only_while_its_home_stands():
    """The checkpoint that a chunk was moved into is pruned and swept before the next one names it: it is moved again."""
    repo = family()

    def rival() -> None:
        bury_all(repo, find(repo, "run", 20), find(repo, "child", 20))
        sweep(repo, None, grace_s=0)

    plans = Before(repo.store, "runs/run/plans/s0000000000000030", rival)
    done = repack(reopened(repo, plans))
    assert {old.step for old, _ in done.rewritten} == {20, 30, 40}
    sweep(repo, None, grace_s=0)
    assert [one.step for one in checkpoints(repo, "run")] == [40, 30]
    assert [damage for one in checkpoints(repo, "run") for damage in verify(repo, one)] == []


def test_a_commit_that_was_not_followed_by_its_tomb():
    """A list shows the new one alone, with the old one's tags; the next repack ends it and writes nothing anew."""
    repo = family()

    def die() -> None:
        raise Crashed("before the tomb")

    with pytest.raises(Crashed):
        repack(reopened(repo, Before(repo.store, "runs/run/tombs/s0000000000000030", die)))
    new = next(one for one in checkpoints(repo, "run") if one.step == 30)
    assert new.tags == ("best",)
    assert not tombed(repo, "run", parse_save(new.replaces))
    rest = repack(reopened(repo, repo.store, salt=2))
    assert [old.step for old, _ in rest.rewritten] == [40]
    assert rest.bytes_written == 0
    assert find(repo, "run", 30).save == new.save
    assert tombed(repo, "run", parse_save(new.replaces))
    finish(reopened(repo, repo.store, salt=3))
