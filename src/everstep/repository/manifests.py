"""The manifest of a save: made from the plan and the outlines alone, so that whoever makes it makes the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from everstep.format.entries import Container, Entry, Tensor
from everstep.format.limits import FORMAT_MAJOR
from everstep.format.manifest import Manifest
from everstep.format.outline import Outline
from everstep.format.own import own_roots
from everstep.format.paths import parent
from everstep.format.records import PlanRecord
from everstep.repository.agreement import disagreement

__all__ = ["make_manifest", "union"]


def make_manifest(plan: PlanRecord, outlines: Sequence[Outline]) -> Manifest:
    """The manifest over all ranks' outlines, which come in the order of ranks and agree (`check_agreement`).

    Raises `DisagreeingPlans` when two ranks describe one leaf differently.
    """
    not_finite = sorted({path for outline in outlines for path in outline.meta.not_finite})
    return Manifest(
        format=FORMAT_MAJOR,
        run=plan.run,
        save=plan.save,
        world=plan.world,
        created=plan.created,
        indexes=tuple(outline.ref for outline in outlines),
        entries=union(plan, outlines),
        packs=tuple(sorted({pack for outline in outlines for pack in outline.packs})),
        meta=msgspec.structs.replace(outlines[0].meta, not_finite=tuple(not_finite)),
        bytes=sum(outline.bytes for outline in outlines),
        stored_bytes=sum(outline.stored_bytes for outline in outlines),
        forked_from=plan.forked_from,
    )


def union(plan: PlanRecord, outlines: Sequence[Outline]) -> tuple[Entry, ...]:
    """All ranks' entries in one pre-order list: each path once, children in the order they are first met.

    Containers ``per_rank``, and below a ``stage`` all that have keys, get those of every rank. Of a tensor below a
    ``stage`` that ranks lay out differently the lowest rank's layout stands. Raises `DisagreeingPlans` for all
    else that differs.
    """
    if len(outlines) == 1:
        return outlines[0].entries
    made = _Union(plan, outlines[0])
    for outline in outlines:
        made.add(outline)
    return tuple(made.entries())


class _Union:
    """Entries met so far by path, each with the rank that told it first."""

    def __init__(self, plan: PlanRecord, first: Outline) -> None:
        self._plan = plan
        roots = own_roots(first.entries)
        self._stages = tuple(path for path, kind in roots.items() if kind == "stage")
        self._below = tuple(f"{path}/" if path else "" for path in self._stages)
        self._found: dict[str, tuple[int, Entry]] = {}
        self._children: dict[str, list[str]] = {}
        self._keys: dict[str, dict[bytes, Any]] = {}

    def add(self, outline: Outline) -> None:
        for entry in outline.entries:
            if entry.path in self._found:
                rank, standing = self._found[entry.path]
                if standing != entry:
                    self._merge(rank, standing, outline.rank, entry)
                continue
            self._found[entry.path] = (outline.rank, entry)
            if entry.path:
                self._children.setdefault(parent(entry.path), []).append(entry.path)

    def entries(self) -> Iterator[Entry]:
        waiting = [""] if self._found else []
        while waiting:
            path = waiting.pop()
            entry = self._found[path][1]
            if path in self._keys:
                yield msgspec.structs.replace(entry, keys=list(self._keys[path].values()))
            else:
                yield entry
            waiting.extend(reversed(self._children.get(path, ())))

    def _merge(self, rank: int, standing: Entry, other: int, entry: Entry) -> None:
        staged = entry.path in self._stages or entry.path.startswith(self._below)
        if isinstance(standing, Container) and isinstance(entry, Container):
            alike = standing.type == entry.type and standing.length == entry.length
            keyed = (standing.keys is None) == (entry.keys is None)
            if alike and keyed and (staged or entry.type == "per_rank"):
                self._unite(standing)
                self._unite(entry)
                return
        elif staged and isinstance(standing, Tensor) and isinstance(entry, Tensor):
            relaid = msgspec.structs.replace(entry, layout=standing.layout)
            if standing == relaid:
                return
        raise disagreement(self._plan, entry.path, [(standing, [rank]), (entry, [other])])

    def _unite(self, container: Container) -> None:
        if container.keys is None:
            return
        keys = self._keys.setdefault(container.path, {})
        for key in container.keys:
            keys.setdefault(msgspec.json.encode(key, order="deterministic"), key)
