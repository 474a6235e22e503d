"""The protocol keeps its promises in every order of events, and each of its rules is needed."""

from __future__ import annotations

import re
from itertools import combinations

import pytest

from tests.model.casts import ACTORS, CASTS, play, play_cast
from tests.model.graves import bury, undelete
from tests.model.promises import left
from tests.model.search import alone
from tests.model.sweeps import prune, tidy

LARGE = {
    "two attempts beside a sweep of all",
    "forks of forks beside sweeps of all",
    "graces of several lengths",
    "repack of what is a base",
    "repack beside a new attempt",
    "repack of what is tagged",
    "two copies of one save",
}
WRONG = {
    "lost": r"(committed|tagged) [SR]\d lost pack [SR]\d( when all is swept)?",
    "lost under a reader": r"S1 lost pack S1 while it is read( when all is swept)?",
    "late": r"the old attempt committed after the new one had resumed( when all is swept)?",
    "changed": r"a decision changed",
    "no tag": r"a tag cannot be given( when all is swept)?",
    "no newest": r"the newest step is pruned",
    "no verified": r"all that were verified are swept( when all is swept)?",
}


def casts(size):
    """Every choice of so many actors with a sweep or a writer beside another; two sweeps are alike."""
    return [
        cast
        for cast in combinations(ACTORS, size)
        if ("sweep2" not in cast or "sweep" in cast) and ("sweep" in cast or {"old", "new"} <= set(cast))
    ]


@pytest.mark.parametrize("actors", casts(3), ids="-".join)
def test_three_actors_in_every_order(actors):
    """No checkpoint that stands, is tagged or is being read loses anything, no attempt commits late, no decision changes."""
    found = play(actors)
    assert not found.wrong, "\n".join(found.way)
    assert found.states > 100


@pytest.mark.parametrize("actors", casts(2), ids="-".join)
def test_two_actors_leave_nothing(actors):
    """Wherever all stand still for ever, one sweep of the whole store leaves what is live, and nothing else."""
    found = play(actors, tidied=True)
    assert not found.wrong, "\n".join(found.way)


@pytest.mark.parametrize("cast", sorted(CASTS.keys() - LARGE))
def test_small_worlds_keep_their_promises_and_leave_nothing(cast):
    """Both, where forks, copies, repacks, policies and undeletes meet: a world for each question."""
    found = play_cast(cast)
    assert not found.wrong, "\n".join(found.way)


@pytest.mark.parametrize("cast", sorted(LARGE - {"forks of forks beside sweeps of all"}))
def test_larger_worlds_keep_their_promises(cast):
    """The promises alone, where the search is long."""
    found = play_cast(cast, tidied=False)
    assert not found.wrong, "\n".join(found.way)


@pytest.mark.more
@pytest.mark.parametrize("cast", sorted(LARGE))
def test_larger_worlds_leave_nothing(cast):
    """And what is left behind, there too."""
    found = play_cast(cast)
    assert not found.wrong, "\n".join(found.way)


@pytest.mark.more
@pytest.mark.parametrize("actors", casts(3), ids="-".join)
def test_three_actors_leave_nothing(actors):
    """What is left behind by any three."""
    found = play(actors, tidied=True)
    assert not found.wrong, "\n".join(found.way)


@pytest.mark.more
@pytest.mark.parametrize(
    "actors",
    [
        ("old", "fork", "sweep", "undelete"),
        ("old", "new", "sweep", "undelete"),
        ("old", "new", "sweep", "reader"),
        ("old", "new", "fork", "sweep"),
        ("old", "sweep", "tag", "undelete"),
        ("fork", "sweep", "sweep2", "undelete"),
    ],
    ids="-".join,
)
def test_four_actors_in_every_order(actors):
    """A writer, a fork, a sweep and an undelete at once, and other fours."""
    found = play(actors)
    assert not found.wrong, "\n".join(found.way)


@pytest.mark.parametrize(
    "cast",
    [("old", "sweep", "undelete"), ("fork", "sweep", "undelete"), "undeleted and buried again"],
    ids=str,
)
def test_fates_may_be_decided_after_all_was_looked_at(cast):
    """The order of the code: what was undeleted meanwhile is live then, and so is what it refers to."""
    found = (play_cast if isinstance(cast, str) else play)(cast, frozenset({"fates last"}), tidied=True)
    assert not found.wrong, "\n".join(found.way)


@pytest.mark.parametrize("other", ["old", "new", "fork", "tag", "undelete"])
def test_equal_frames_are_equal_states(other):
    """That states of a program are merged hides nothing: the same stores are reached without it."""
    merged, apart = play((other, "sweep")), play((other, "sweep"), merged=False)
    assert merged.stores == apart.stores
    assert merged.states <= apart.states


def test_a_checkpoint_can_be_pruned_again_after_an_undelete():
    """The second burial has a tomb and a fate of its own; under one name it would do nothing."""
    first, _ = CASTS["undeleted and buried again"]

    def twice(broken):
        store = alone(undelete(broken), first)
        store = alone(bury(broken, "a", "S1"), store)
        return alone(prune(broken, victims=()), store)

    assert ("pack", "", "S1") not in twice(frozenset())
    assert ("pack", "", "S1") in twice(frozenset({"one name for all tombs"}))


def test_an_operator_alone_leaves_nothing_of_a_writer_that_comes_late():
    """Packs, an index and a manifest that come after a sweep of their save go with the next one of the whole store."""
    first, _ = CASTS["a copy inside the store"]
    store = alone(tidy(frozenset()), {**first, ("commit", "a", "S9"): "aborted"})
    late = {
        ("pack", "", "S9"): "",
        ("index", "a", "S9"): frozenset(["S9"]),
        ("manifest", "a", "S9"): frozenset(["S9"]),
    }
    assert not left({**store, **late})


@pytest.mark.parametrize(
    ("broken", "cast", "wrong"),
    [
        ("dedupe by presence", ("old", "new", "sweep"), "lost"),
        ("no look", ("old", "sweep"), "lost"),
        ("look before plan", ("old", "sweep"), "lost"),
        ("no pin", ("old", "sweep"), "lost"),
        ("plans before tomb", ("old", "sweep"), "lost"),
        ("forget old plans", ("old", "sweep"), "lost"),
        ("delete records", ("old", "sweep"), "changed"),
        ("no settling", ("old", "new"), "late"),
        ("fence before plan", ("old", "new"), "late"),
        ("plain put", ("old", "new"), "changed"),
        ("finish without indexes", ("old", "new"), "lost"),
        ("no look", ("fork", "sweep"), "lost"),
        ("no pin", ("fork", "sweep"), "lost"),
        ("look before plan", ("fork", "sweep"), "lost"),
        ("no link", ("fork", "sweep"), "lost"),
        ("sweep one run", ("fork", "sweep"), "lost"),
        ("link after look", "a fork of what is swept", "lost"),
        ("heirs before the dead", "a fork of what is swept", "lost"),
        ("heirs of the run alone", "two generations of forks", "lost"),
        ("tombs of heirs last", "two generations of forks", "lost"),
        ("packs of others", "a sweep of a fork", "lost"),
        ("one catalogue", "a fork beside sweeps of all", "lost"),
        ("skip what is gone", "a base that goes while it is marked", "lost"),
        ("skip the base that is gone", "a base that goes while it is marked", "lost"),
        ("skip what is gone", "a fork's base that goes while it is marked", "lost"),
        ("skip the base that is gone", "a fork's base that goes while it is marked", "lost"),
        ("delete pinned manifests", "a base that goes beside a sweep of all", "lost"),
        ("undelete by looks", ("sweep", "undelete"), "lost"),
        ("undelete without fate", ("sweep", "undelete"), "lost"),
        ("no fates", ("sweep", "undelete"), "lost"),
        ("no look at readers", ("sweep", "reader"), "lost under a reader"),
        ("reader looks first", ("sweep", "reader"), "lost under a reader"),
        ("reader without pin", ("sweep", "reader"), "lost under a reader"),
        ("reader without look", ("sweep", "reader"), "lost under a reader"),
        ("no look at tags", ("sweep", "tag"), "lost"),
        ("tag without pin", ("sweep", "tag"), "no tag"),
        ("pin what was replaced", "repack of what is tagged", "no tag"),
        ("bury the verified", "two policies", "no verified"),
        ("no second look at the verified", "two long lists of tombs", "no verified"),
        ("each save for itself", "repack beside a policy", "no newest"),
        ("tags do not follow", "repack of what is tagged", "lost"),
        ("only the last of a chain", "repack of what is tagged", "lost"),
        ("no second look at the tagged", "repack of what is tagged", "lost"),
        ("copy without its own name", "a copy inside the store", "lost"),
        ("copy without look", "a copy inside the store", "lost"),
        ("copy without link", "a copy inside the store", "lost"),
        ("copies are made here", "a prune of a copy", "lost"),
        ("copies are made here", "a prune of a copy whose packs another copy relies on", "lost"),
        ("orphans at once", "a copy of what lies there", "lost"),
        ("orphans at once", "a copy that needs what lies there", "lost"),
        ("no look at orphans", "a copy of what lies there", "lost"),
        ("no look at orphans", "a copy that needs what lies there", "lost"),
    ],
)
def test_each_rule_is_needed(broken, cast, wrong):
    """With one rule left out the search finds a way to break a promise."""
    found = (play_cast if isinstance(cast, str) else play)(cast, frozenset({broken}), tidied=True)
    assert re.fullmatch(WRONG[wrong], found.wrong), found
