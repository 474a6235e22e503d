"""A prune or a sweep beside saves, launches, forks, copies, tags, undeletes, restores and other prunes, at every moment.

One of them runs; before each of its store calls another runs wholly. So a sweep is stopped at every call, for as long
as you like, and goes on with what it knew. Then what is left is finished, swept and read.
"""

import contextlib
import functools
import itertools
from functools import partial

import pytest

from everstep.errors import CheckpointPruned
from everstep.repository.attempts import claim
from everstep.repository.catalogue import checkpoints, find
from everstep.repository.copying import copy
from everstep.repository.repository import Repository
from everstep.repository.saves import begin, commit, write_index
from everstep.repository.tombs import bury
from everstep.repository.verify import verify
from everstep.retention.policy import parse_keep
from everstep.retention.prune import plan_prune, prune
from everstep.retention.sweep import sweep
from everstep.store.count import Count
from everstep.store.memory import MemoryStore
from tests.faults import pruning as p
from tests.repository.worlds import keys, known_chunks, make_index, put, started, world

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


@functools.cache
def two_stores() -> tuple[dict[str, bytes], dict[str, bytes]]:
    """A run of six checkpoints, and a store that has its last two as copies, the older one pruned.

    So there lie packs of saves that nobody knows there.
    """
    repo, attempt = started()
    made = [put(repo, attempt, 1, p.leaves(1))]
    for step in (2, 3, 4, 5):
        made.append(put(repo, attempt, step, p.leaves(step), bases=made[-2:]))
    made.append(put(repo, attempt, 6, {"alone": b"6"}))
    there = world()
    copy(repo, [made[2], made[5]], there)
    prune(there, plan_prune(there, "run", parse_keep("last 1"), now=0), grace_s=0)
    both = ({key: one.store.get(key, 10**9) for key in keys(one.store)} for one in (repo, there))
    return next(both), next(both)


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.more)])
@pytest.mark.parametrize("sweeping", [True, False], ids=["sweep", "copy"])
def test_a_copy_from_another_store_beside_a_sweep(sweeping, every):
    """A copy relies on packs that are there, and that a sweep takes for nobody's: it is whole, or refused (fault 13)."""

    def copied(source: Repository, there: Repository, step: int) -> None:
        with contextlib.suppress(CheckpointPruned):
            copy(source, [find(source, "run", step)], there)

    for step, moment in itertools.product((1, 5), range(1, 60, every)):
        here, other = MemoryStore(), MemoryStore()
        for store, objects in zip((here, other), two_stores(), strict=True):
            for key, body in objects.items():
                store.create(key, body)
        source, there = p.opened(here, 1), p.opened(other, 2)
        whole = partial(copied, source, there, step) if sweeping else partial(sweep, there, None, grace_s=0)
        meanwhile = p.Meanwhile(other, whole)
        meanwhile.at = moment
        through = p.opened(meanwhile, 3)
        if sweeping:
            sweep(through, None, grace_s=0)
        else:
            copied(source, through, step)
        sweep(there, None, grace_s=0)
        for one in checkpoints(there, "run"):
            assert verify(there, one) == []


@pytest.mark.parametrize("before", ["nothing", "begun", "buried"])
def test_a_save_and_another_prune_between_two_calls_of_a_sweep(before):
    """A save commits, its base is pruned and swept by another, while a sweep stands still (fault 13).

    What the save found in its base's list of packs is told by nothing that this sweep has seen, but by the base. The
    save was begun before, or begun and its base pruned, or not yet.
    """
    for moment in range(1, 90):
        inner = p.scene()
        repo = p.opened(inner, 1)
        third = find(repo, "run", 3)
        attempt = claim(repo, "run", owner="again")
        known = known_chunks(repo, (third,))
        begun = None if before == "nothing" else begin(repo, attempt, 7, bases=(third,))
        if before == "buried":
            bury(repo, "run", third.save, why="a test")

        def act(repo=repo, third=third, attempt=attempt, begun=begun, known=known) -> None:
            save = begun or begin(repo, attempt, 7, bases=(third,))
            write_index(repo, save, make_index(save, p.leaves(7), known=known, store=repo.store))
            commit(repo, save, timeout_s=0)
            bury(repo, "run", third.save, why="a test")
            sweep(repo, ("run",), grace_s=0)

        meanwhile = p.Meanwhile(inner, act)
        meanwhile.at = moment
        sweep(p.opened(meanwhile, 2), None, grace_s=0)
        p.sound(inner)
        if meanwhile.calls < moment:
            break
        assert find(repo, "run").step == 7
        p.finished(inner)
    assert 30 < moment < 89
