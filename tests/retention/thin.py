"""Worlds with packs of pruned saves that live checkpoints still need a little of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from everstep.repository.checkpoint import Checkpoint
from everstep.repository.fence import Attempt
from everstep.repository.reading import read_indexes
from everstep.repository.repository import Repository
from everstep.repository.tombs import bury
from everstep.store.protocol import Store
from tests.repository.worlds import put, started

SHARED = bytes(range(256)) * 20
"""A leaf that never changes: 5,120 bytes."""


def leaves(step: int, **more: bytes) -> dict[str, bytes]:
    """A small leaf for ever, and a large one that is another at each step."""
    large = b"".join((step * 10_000 + n).to_bytes(8, "big") for n in range(8_000))
    return {"frozen": SHARED, "head": large, **more}


def bury_all(repo: Repository, *dead: Checkpoint) -> None:
    """Prune them, as a policy would."""
    for one in dead:
        bury(repo, one.run, one.save, why="test")


def chain(
    repo: Repository,
    attempt: Attempt,
    steps: Sequence[int],
    more: Mapping[int, dict[str, bytes]] | None = None,
) -> list[Checkpoint]:
    """A checkpoint at each step, each with the one before as its base."""
    made: list[Checkpoint] = []
    for step in steps:
        given = leaves(step, **(more or {}).get(step, {}))
        made.append(put(repo, attempt, step, given, bases=made[-1:], metrics={"loss": 1 / step}))
    return made


def thinned(
    store: Store | None = None, *, keep: int = 2, ranks: int = 1
) -> tuple[Repository, Attempt, list[Checkpoint]]:
    """Checkpoints at 10 to 40, all but the last ones pruned: step 10's pack has one leaf that is needed."""
    repo, attempt = started(store, ranks=ranks)
    made = chain(repo, attempt, (10, 20, 30, 40))
    bury_all(repo, *made[:-keep])
    return repo, attempt, made


def total(store: Store) -> int:
    """The bytes of all packs."""
    return sum(found.size for found in store.list("packs/"))


def digests(repo: Repository, *checkpoints: Checkpoint) -> dict[str, set[tuple[str, int]]]:
    """By digest the places where checkpoints have it."""
    found: dict[str, set[tuple[str, int]]] = {}
    for one in checkpoints:
        for index in read_indexes(repo, one):
            for shard in index.shards:
                for chunk in shard.chunks:
                    found.setdefault(chunk.digest, set()).add((index.packs[chunk.pack], chunk.offset))
    return found
