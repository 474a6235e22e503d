"""The commit protocol keeps its promises in every order of events, and each of its rules is needed."""

from __future__ import annotations

import re
from itertools import combinations

import pytest

from tests.model.protocol import ACTORS, explore


def casts(size):
    """Every choice of so many actors; two sweeps are alike."""
    chosen = [cast for cast in combinations(ACTORS, size) if "sweep2" not in cast or "sweep" in cast]
    return pytest.mark.parametrize("actors", chosen, ids="-".join)


LOST = r"committed S\d lost a pack"
LATE = "the old attempt committed after the new one had resumed"


@casts(3)
def test_three_actors_in_every_order(actors):
    """No committed checkpoint loses a pack, no fenced attempt commits late, no decision changes."""
    found = explore(actors)
    assert not found.wrong, "\n".join(found.way)
    assert found.states > 1_000


@pytest.mark.more
@casts(4)
def test_four_actors_in_every_order(actors):
    """The same with one more beside them: two sweeps beside two writers are 807,616 states."""
    found = explore(actors)
    assert not found.wrong, "\n".join(found.way)


@pytest.mark.parametrize(
    ("broken", "actors", "wrong"),
    [
        ("dedupe by presence", ("old", "new", "sweep"), LOST),
        ("no look", ("old", "new", "sweep"), LOST),
        ("look before pin", ("old", "new", "sweep"), LOST),
        ("plans before tomb", ("old", "new", "sweep"), LOST),
        ("plans before dead set", ("old", "sweep", "sweep2"), LOST),
        ("forget old plans", ("old", "new", "sweep"), LOST),
        ("delete records", ("old", "new", "sweep"), LOST),
        ("no settling", ("old", "new"), LATE),
        ("fence before plan", ("old", "new"), LATE),
        ("plain put", ("old", "new"), LATE),
        ("finish without indexes", ("old", "new"), "S2 is committed without its index"),
        ("fork without pin", ("fork", "sweep"), LOST),
        ("fork without look", ("fork", "sweep"), LOST),
        ("sweep one run", ("fork", "sweep"), LOST),
    ],
)
def test_each_rule_is_needed(broken, actors, wrong):
    """With one rule left out the search finds a way to break a promise."""
    found = explore(actors, frozenset({broken}))
    assert found.way
    assert re.fullmatch(wrong, found.wrong), found
