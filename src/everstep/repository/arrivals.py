"""Which ranks have written their index: rank and digest stand in the names, so one list shows it."""

from __future__ import annotations

import re

from everstep.errors import DuplicateRank, SaveFailed
from everstep.format.ids import SaveId
from everstep.format.manifest import IndexRef
from everstep.repository.keys import index_key, save_prefix
from everstep.repository.objects import listed
from everstep.repository.repository import Repository

__all__ = ["arrivals", "missing_ranks", "name_ranks"]

_INDEX = re.compile(r"rank-(\d+)\.([0-9a-f]{64})\.json")
_SHOWN = 20


def arrivals(repo: Repository, run: str, save: SaveId, world: int) -> dict[int, IndexRef]:
    """The indexes that are there, by rank; each rank once, whatever the list repeats.

    Raises `DuplicateRank` when a rank has two with different digests, and `SaveFailed` for a rank beyond
    the world: neither save can become a checkpoint.
    """
    prefix = save_prefix(run, save)
    found: dict[int, IndexRef] = {}
    for one in listed(repo.store, prefix):
        match = _INDEX.fullmatch(one.key.removeprefix(prefix))
        if match is None or index_key(run, save, int(match[1]), match[2]) != one.key:
            continue
        ref = IndexRef(rank=int(match[1]), digest=match[2], size=one.size)
        if ref.rank >= world:
            raise SaveFailed(
                f"save {save} of run {run!r} has an index of rank {ref.rank} in a world of {world}",
                hint="give every rank the same world size",
                run=run,
                save=str(save),
                rank=ref.rank,
                world=world,
                key=one.key,
            )
        other = found.setdefault(ref.rank, ref)
        if other.digest != ref.digest:
            raise DuplicateRank(
                f"rank {ref.rank} wrote save {save} of run {run!r} twice: {other.digest} and {ref.digest}",
                hint="two processes believe to be this rank; check how the launcher numbers them",
                run=run,
                save=str(save),
                rank=ref.rank,
                digests=(other.digest, ref.digest),
            )
    return found


def missing_ranks(found: dict[int, IndexRef], world: int) -> str:
    """The ranks that have not come, for people; empty when all have."""
    return name_ranks([rank for rank in range(world) if rank not in found])


def name_ranks(ranks: list[int]) -> str:
    """Ranks by number, the first few."""
    if not ranks:
        return ""
    more = f" and {len(ranks) - _SHOWN} more" if len(ranks) > _SHOWN else ""
    return f"rank {', '.join(map(str, ranks[:_SHOWN]))}{more}"
