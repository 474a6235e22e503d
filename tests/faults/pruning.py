"""A store with a pruned, a forked, a tagged and a given-up save, and what may go on in it at the same time."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from everstep.errors import (
    AlreadyExists,
    CheckpointNotFound,
    CheckpointPruned,
    Fenced,
    SaveAborted,
    UsageError,
)
from everstep.repository.attempts import claim
from everstep.repository.catalogue import checkpoints, find, resolve, runs
from everstep.repository.copying import copy
from everstep.repository.fork import fork
from everstep.repository.opening import open_repository
from everstep.repository.readers import reading
from everstep.repository.reading import read_manifest
from everstep.repository.repository import Repository
from everstep.repository.saves import abort, begin, write_index
from everstep.repository.tags import set_tag, tags
from everstep.repository.tombs import bury
from everstep.repository.undelete import undelete
from everstep.repository.verified import mark_verified
from everstep.repository.verify import verify
from everstep.retention.policy import parse_keep
from everstep.retention.prune import plan_prune, prune
from everstep.retention.sweep import sweep
from everstep.store.memory import MemoryStore
from everstep.store.protocol import Body, Listed, Store
from tests.repository.worlds import content, keys, make_index, put, reopened, world

Operation = Callable[[Repository], None]

REFUSALS = (AlreadyExists, CheckpointNotFound, CheckpointPruned, Fenced, SaveAborted, UsageError)
"""What somebody may be told because another was there: nothing is damaged by any of them."""


def leaves(step: int) -> dict[str, bytes]:
    """The state at a step: a part that always changes, and one that is alike at steps 1, 3 and 7, and at 4, 5, 6."""
    slow = step % 2 if step in {1, 2, 3, 7} else 9
    return {"slow": bytes([slow]) * 60, "quick": bytes([step]) * 50}


@functools.cache
def objects() -> dict[str, bytes]:
    """Five checkpoints of ``run``, each with the two before as bases; the first pruned, the second tagged.

    So of the first one's packs the third needs one, and only it.
    ``child`` is a fork of the second and has saved once itself. A save of step 9 was given up after its packs and index.
    """
    repo = world()
    attempt = claim(repo, "run", owner="test")
    made = [put(repo, attempt, 1, leaves(1))]
    for step in (2, 3, 4, 5):
        made.append(put(repo, attempt, step, leaves(step), bases=made[-2:]))
    given_up = begin(repo, attempt, 9, bases=made[-1:])
    write_index(repo, given_up, make_index(given_up, leaves(9), store=repo.store))
    abort(repo, given_up, "a test")
    first = fork(repo, made[1], "child")
    put(repo, claim(repo, "child", owner="test"), 6, leaves(6), bases=(first,))
    set_tag(repo, "kept", made[1])
    mark_verified(repo, "run", made[3].save, by="verify")
    bury(repo, "run", made[0].save, why="a test")
    return {key: repo.store.get(key, 10**9) for key in keys(repo.store)}


def scene() -> MemoryStore:
    """That store, anew."""
    store = MemoryStore()
    for key, body in objects().items():
        store.create(key, body)
    return store


def opened(store: Store, salt: int) -> Repository:
    """The repository through a store, with random bits of its own."""
    return reopened(open_repository(store, create=False), store, salt)


def sound(store: Store) -> None:
    """Every checkpoint that is listed is whole and what was saved, every tag leads to one, the newest is there."""
    repo = opened(store, 99)
    for record in runs(repo):
        for one in checkpoints(repo, record.run):
            assert verify(repo, one) == [], one
            assert content(repo, one) == leaves(one.step), one
    for tag in tags(repo):
        assert verify(repo, resolve(repo, f"tag:{tag.tag}")) == []
    assert find(repo, "run").step >= 5
    assert find(repo, "child").step == 6


def spotless(store: Store) -> None:
    """Beside what checkpoints need there are no packs, no indexes, no manifests and no plans."""
    repo = opened(store, 98)
    needed, folders, plans = set(), set(), set()
    for record in runs(repo):
        for one in checkpoints(repo, record.run):
            needed |= set(read_manifest(repo, one).packs)
            folders.add(f"runs/{one.run}/saves/{one.save}/")
            plans.add(f"runs/{one.run}/plans/{one.save}.json")
    assert set(keys(store, "packs/")) == needed
    for record in runs(repo):
        assert set(keys(store, f"runs/{record.run}/plans/")) <= plans
        for key in keys(store, f"runs/{record.run}/saves/"):
            assert key.rpartition("/")[0] + "/" in folders, key


def last_two(repo: Repository) -> None:
    """The run is pruned, at once."""
    plan = plan_prune(repo, "run", parse_keep("last 2"), now=0.0)
    prune(repo, plan, grace_s=0)


def last_one(repo: Repository) -> None:
    """As another would do it, with another policy."""
    plan = plan_prune(repo, "run", parse_keep("last 1"), now=0.0, check="none", measure=False)
    prune(repo, plan, grace_s=0, measure=False)


def prune_child(repo: Repository) -> None:
    """The fork is pruned."""
    prune(repo, plan_prune(repo, "child", parse_keep("last 1"), now=0.0), grace_s=0)


def sweep_all(repo: Repository) -> None:
    """What is dead in the whole store goes."""
    sweep(repo, None, grace_s=0)


def save(repo: Repository) -> None:
    """A launch saves, with the newest as its base."""
    newest = find(repo, "run")
    put(repo, claim(repo, "run", owner="again"), newest.step + 1, leaves(newest.step + 1), bases=(newest,))


def save_from_the_third(repo: Repository) -> None:
    """A launch that rolled back saves, with a checkpoint as its base that a policy may give up."""
    third = find(repo, "run", 3)
    put(repo, claim(repo, "run", owner="again"), 7, leaves(7), bases=(third,))


def fork_the_third(repo: Repository) -> None:
    """A new run begins at it."""
    fork(repo, find(repo, "run", 3), "fork")


def copy_inside(repo: Repository) -> None:
    """A run of another name gets two checkpoints of this store, whose packs are there."""
    copy(repo, [find(repo, "run", 3), find(repo, "run", 4)], repo, run="copy")


def tag_the_third(repo: Repository) -> None:
    """A name, for one that a policy may give up."""
    set_tag(repo, "new", find(repo, "run", 3))


def move_the_tag(repo: Repository) -> None:
    """A name goes from the second to the third."""
    set_tag(repo, "kept", find(repo, "run", 3), force=True)


def bring_back(repo: Repository) -> None:
    """The first is undeleted."""
    undelete(repo, "run", 1)


def restore(repo: Repository) -> None:
    """The third is read under a pin: whole, or it was pruned before."""
    third = find(repo, "run", 3)
    with reading(repo, third, owner="test"):
        assert content(repo, third) == leaves(3)


OPERATIONS: tuple[Operation, ...] = (
    last_two,
    last_one,
    prune_child,
    sweep_all,
    save,
    save_from_the_third,
    fork_the_third,
    copy_inside,
    tag_the_third,
    move_the_tag,
    bring_back,
    restore,
)
DELETING = (last_two, last_one, prune_child, sweep_all)


def finished(store: Store) -> None:
    """What a crash or a race has left is brought to an end: the next launches, then sweeps of everything."""
    repo = opened(store, 97)
    for record in runs(repo):
        if list(store.list(f"runs/{record.run}/attempts/")):
            claim(repo, record.run, owner="next")
    sweep(repo, None, grace_s=0)
    sound(store)
    spotless(store)


class Meanwhile:
    """The inner store; ``act`` happens before the ``at``-th call, in the middle of what this process does."""

    def __init__(self, inner: Store, act: Callable[[], None]) -> None:
        self._inner, self._act = inner, act
        self.calls, self.at = 0, 0

    @property
    def url(self) -> str:
        """The inner store's."""
        return self._inner.url

    def _next(self) -> Store:
        self.calls += 1
        if self.calls == self.at:
            self._act()
        return self._inner

    def create(self, key: str, body: Body) -> None:
        """As the inner store's."""
        self._next().create(key, body)

    def get(self, key: str, limit: int) -> bytes:
        """As the inner store's."""
        return self._next().get(key, limit)

    def get_range(self, key: str, start: int, into: memoryview) -> None:
        """As the inner store's."""
        self._next().get_range(key, start, into)

    def list(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """As the inner store's; all at once, as it is at this moment."""
        return iter(list(self._next().list(prefix, after)))

    def delete(self, key: str) -> None:
        """As the inner store's."""
        self._next().delete(key)
