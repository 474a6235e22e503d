"""Digests of what several ranks hold alike, to find the one whose memory differs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from everstep.format.box import Box
from everstep.format.digests import Digest, digest_of

__all__ = ["Copies", "Copy", "Replicas", "copies", "group_of", "replicas", "runs_of"]

Run = tuple[int, int, int]
"""Ranks: the first, how many, and the step from one to the next."""


class Replicas(msgspec.Struct, frozen=True, array_like=True):
    """One digest over all that a rank holds alike with the ranks ``runs``; no runs: with all ranks."""

    runs: tuple[Run, ...]
    digest: str


class Copy(msgspec.Struct, frozen=True, array_like=True):
    """The bytes of one box, as one rank holds them."""

    path: str
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    digest: str


class Copies(msgspec.Struct, frozen=True, kw_only=True):
    """The second round, after a group's digests differed: each box on its own."""

    format: int
    rank: int
    copies: tuple[Copy, ...]


def copies(held: Iterable[tuple[str, Box, Digest]]) -> tuple[Copy, ...]:
    """What a rank holds of a group, sorted, so that equal ranks say equal things."""
    return tuple(
        Copy(path, box.offsets, box.sizes, digest)
        for path, box, digest in sorted(held, key=lambda one: (one[0], one[1]))
    )


def replicas(groups: Mapping[tuple[int, ...] | None, Sequence[Copy]]) -> tuple[Replicas, ...]:
    """The first round: for each group of sharers (None: all ranks) one digest of its sorted `copies`.

    A group of one has nothing to compare and is left out.
    """
    return tuple(
        Replicas(
            () if ranks is None else runs_of(ranks),
            digest_of(msgspec.json.encode([(one.path, one.offsets, one.sizes, one.digest) for one in held])),
        )
        for ranks, held in sorted(groups.items(), key=lambda group: group[0] or ())
        if ranks is None or len(set(ranks)) > 1
    )


def runs_of(ranks: Iterable[int]) -> tuple[Run, ...]:
    """Ranks in ascending order as runs of equal steps."""
    found: list[Run] = []
    for rank in sorted(set(ranks)):
        first, count, step = found[-1] if found else (rank, 0, 0)
        if found and (count == 1 or rank == first + count * step):
            found[-1] = (first, count + 1, rank - first if count == 1 else step)
        else:
            found.append((rank, 1, 1))
    return tuple(found)


def group_of(runs: Sequence[Run], world: int) -> tuple[int, ...]:
    """The ranks of these runs in ascending order; without runs all of the world."""
    if not runs:
        return tuple(range(world))
    return tuple(sorted(first + n * step for first, count, step in runs for n in range(count)))
