"""Which of the pieces a rank holds it also writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from everstep.format.box import Box
from everstep.format.digests import Digest, digest_of
from everstep.format.entries import Entry
from everstep.format.own import shared_entries
from everstep.plan.dealing import deal

__all__ = ["Holdable", "SavePlan", "plan_save"]


class Holdable(Protocol):
    """A shard that this rank holds, perhaps with other ranks."""

    @property
    def path(self) -> str:
        """The tensor."""
        ...

    @property
    def box(self) -> Box:
        """The elements."""
        ...

    @property
    def nbytes(self) -> int:
        """Their size."""
        ...

    @property
    def replicas(self) -> tuple[int, ...] | None:
        """The ranks that hold the same bytes, this one among them; None: every rank of the save."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SavePlan:
    """What one rank writes: positions in its list of pieces, in that order, and their bytes.

    ``digest`` is that of the global plan: ranks with different digests must not commit together.
    """

    rank: int
    world: int
    writes: tuple[int, ...]
    nbytes: int
    digest: Digest


def plan_save(pieces: Sequence[Holdable], *, rank: int, world: int, entries: Sequence[Entry]) -> SavePlan:
    """Choose the one writer of each piece, without asking another rank.

    The ranks that share a piece all see it, with the same sharers. So each such group deals out its pieces on
    its own, alike on every member, as `deal` says: no member gets more than the mean plus the largest piece.

    The digest covers the world size and the entries, whole: paths, kinds, element types, global shapes,
    layouts, what is tied to what, and plain values. Equal digests mean equal entries, so that a rank need not
    repeat those of rank 0. What lies below ``per_rank`` and ``stage`` containers is left out.
    """
    groups: dict[tuple[int, ...], list[int]] = {}
    everyone = tuple(range(world))
    for position, piece in enumerate(pieces):
        sharers = everyone if piece.replicas is None else tuple(sorted(set(piece.replicas)))
        if rank not in sharers or sharers[-1] >= world or sharers[0] < 0:
            raise ValueError(f"{piece.path}: rank {rank} of {world} is not among its replicas {sharers}")
        groups.setdefault(sharers, []).append(position)
    mine: list[int] = []
    for sharers, positions in groups.items():
        if len(sharers) == 1:
            mine += positions
            continue
        own = sharers.index(rank)
        dealt = deal([(pieces[p].nbytes, pieces[p].path, pieces[p].box) for p in positions], len(sharers))
        mine += [position for position, member in zip(positions, dealt, strict=True) if member == own]
    mine.sort()
    return SavePlan(
        rank=rank,
        world=world,
        writes=tuple(mine),
        nbytes=sum(pieces[position].nbytes for position in mine),
        digest=_digest(entries, world),
    )


def _digest(entries: Sequence[Entry], world: int) -> Digest:
    return digest_of(msgspec.json.encode((world, shared_entries(entries)), order="deterministic"))
