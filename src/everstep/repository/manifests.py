"""The manifest of a save: made from the plan and the indexes alone, so that whoever makes it makes the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from everstep.errors import DisagreeingPlans
from everstep.format.entries import Container, Entry
from everstep.format.index import Index
from everstep.format.limits import FORMAT_MAJOR
from everstep.format.manifest import IndexRef, Manifest
from everstep.format.paths import parent
from everstep.format.records import PlanRecord

__all__ = ["make_manifest", "union"]


def make_manifest(plan: PlanRecord, refs: Sequence[IndexRef], indexes: Sequence[Index]) -> Manifest:
    """The manifest over all ranks' indexes, which come in the order of ranks, as their ``refs`` do.

    Raises `DisagreeingPlans` when two ranks describe one leaf differently.
    """
    not_finite = sorted({path for index in indexes for path in index.meta.not_finite})
    return Manifest(
        format=FORMAT_MAJOR,
        run=plan.run,
        save=plan.save,
        world=plan.world,
        created=plan.created,
        indexes=tuple(refs),
        entries=union(indexes),
        packs=tuple(sorted({pack for index in indexes for pack in index.packs})),
        meta=msgspec.structs.replace(indexes[0].meta, not_finite=tuple(not_finite)),
        bytes=sum(index.bytes for index in indexes),
        stored_bytes=sum(index.stored_bytes for index in indexes),
        forked_from=plan.forked_from,
    )


def union(indexes: Sequence[Index]) -> tuple[Entry, ...]:
    """All ranks' entries in one pre-order list: each path once, children in the order they are first met."""
    if len(indexes) == 1:
        return indexes[0].entries
    by_path: dict[str, tuple[int, Entry]] = {}
    children: dict[str, list[str]] = {}
    for index in indexes:
        for entry in index.entries:
            if entry.path not in by_path:
                by_path[entry.path] = (index.rank, entry)
                if entry.path:
                    children.setdefault(parent(entry.path), []).append(entry.path)
            else:
                rank, standing = by_path[entry.path]
                by_path[entry.path] = (rank, _merge(standing, entry, rank, index))
    return tuple(_pre_order("", by_path, children)) if by_path else ()


def _pre_order(
    root: str, by_path: dict[str, tuple[int, Entry]], children: dict[str, list[str]]
) -> Iterator[Entry]:
    waiting = [root]
    while waiting:
        path = waiting.pop()
        yield by_path[path][1]
        waiting.extend(reversed(children.get(path, ())))


def _merge(standing: Entry, entry: Entry, rank: int, index: Index) -> Entry:
    """One entry for two ranks': the same, or the container of what differs by rank, with both's keys."""
    if standing == entry:
        return standing
    if (
        isinstance(standing, Container)
        and isinstance(entry, Container)
        and standing.type == entry.type == "per_rank"
    ):
        keys = list(standing.keys or ())
        keys.extend(key for key in entry.keys or () if key not in keys)
        return msgspec.structs.replace(standing, keys=keys)
    raise DisagreeingPlans(
        f"ranks {rank} and {index.rank} describe {entry.path!r} differently in save {index.save} of run {index.run!r}",
        hint="wrap what differs by rank in PerRank",
        run=index.run,
        save=index.save,
        path=entry.path,
        ranks=(rank, index.rank),
    )
