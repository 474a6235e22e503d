"""A prune or a sweep beside saves, launches, forks, copies, tags, undeletes, restores and other prunes, at every moment.

One of them runs; before each of its store calls another runs wholly. So a sweep is stopped at every call, for as long
as you like, and goes on with what it knew. Then what is left is finished, swept and read.
"""

import contextlib
import functools
import itertools

import pytest

from everstep.store.count import Count
from tests.faults import pruning as p

BESIDE = [
    (slow, fast)
    for slow, fast in itertools.product(p.OPERATIONS, p.OPERATIONS)
    if slow in p.DELETING or fast in p.DELETING
]

NEAR = {p.save_from_the_third, p.fork_the_third, p.copy_inside, p.tag_the_third, p.move_the_tag, p.bring_back}
"""What wants something that `last_two` deletes: these two meet at every moment, the others at some."""


def meets(slow: p.Operation, fast: p.Operation) -> bool:
    """Whether the two want the same thing."""
    return {slow, fast} & NEAR != set() and {slow, fast} & {p.last_two} != set()


@functools.cache
def calls_of(operation: p.Operation) -> int:
    """How many store calls it makes."""
    store = Count(p.scene())
    operation(p.opened(store, 1))
    return sum(store.calls.values())


def beside(slow: p.Operation, fast: p.Operation, moment: int) -> None:
    """``fast`` runs before the ``moment``-th call of ``slow``; then both are done, and all is looked at."""
    inner = p.scene()

    def act() -> None:
        with contextlib.suppress(*p.REFUSALS):
            fast(p.opened(inner, 2))
        p.sound(inner)

    store = p.Meanwhile(inner, act)
    store.at = moment
    with contextlib.suppress(*p.REFUSALS):
        slow(p.opened(store, 1))
    p.sound(inner)
    p.finished(inner)


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.more)])
@pytest.mark.parametrize(
    ("slow", "fast"), BESIDE, ids=[f"{slow.__name__}-{fast.__name__}" for slow, fast in BESIDE]
)
def test_one_runs_wholly_between_two_calls_of_another(slow, fast, every):
    """Whatever the moment, no live byte is deleted, no tag is lost, and no garbage stays (faults 12, 13, 14)."""
    every = 1 if meets(slow, fast) else every
    begin = 1 + BESIDE.index((slow, fast)) % every
    for moment in range(begin, calls_of(slow) + 1, every):
        beside(slow, fast, moment)
