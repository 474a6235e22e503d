"""Replicas whose bytes differ: a rank's memory or arithmetic is wrong. Pure; the ranks exchange what goes in.

First every rank puts one digest for each group of sharers into its outline. Groups that agree are done. Of the
others each rank tells every box on its own, and these name the leaves and the ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from everstep.errors import DivergentReplicas
from everstep.format.box import Box
from everstep.format.outline import Outline
from everstep.format.replicas import Copies, Run, group_of
from everstep.repository.arrivals import name_ranks

__all__ = ["Diverging", "divergence", "divergent"]

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Diverging:
    """A group of sharers whose digests differ: its ``runs``, its ranks, and these by digest, the most first."""

    runs: tuple[Run, ...]
    ranks: tuple[int, ...]
    parties: tuple[tuple[int, ...], ...]


def divergent(outlines: Iterable[Outline]) -> tuple[Diverging, ...]:
    """The groups whose members do not all hold the same bytes.

    Ranks without `Outline.replicas`, and groups of which one rank alone tells, prove nothing.
    """
    told: dict[tuple[Run, ...], dict[str, list[int]]] = {}
    world = 0
    for outline in outlines:
        world = outline.world
        for group in outline.replicas:
            told.setdefault(group.runs, {}).setdefault(group.digest, []).append(outline.rank)
    return tuple(
        Diverging(runs=runs, ranks=group_of(runs, world), parties=_parties(digests.values()))
        for runs, digests in told.items()
        if len(digests) > 1
    )


def divergence(run: str, save: str, told: Iterable[Copies]) -> DivergentReplicas | None:
    """The error that names the leaves that differ, and for each the ranks in the minority.

    Where no digest has more ranks than every other, nobody can say who is right: all the ranks are named. None when
    no two ranks tell of a box differently.
    """
    boxes: dict[tuple[str, Box], dict[str, list[int]]] = {}
    for copies in told:
        for copy in copies.copies:
            box = Box(copy.offsets, copy.sizes)
            boxes.setdefault((copy.path, box), {}).setdefault(copy.digest, []).append(copies.rank)
    leaves: dict[str, set[int]] = {}
    torn: set[str] = set()
    for (path, _box), digests in sorted(boxes.items()):
        if len(digests) > 1:
            first, second, *rest = _parties(digests.values())
            tied = len(first) == len(second)
            if tied:
                torn.add(path)
            leaves.setdefault(path, set()).update(second, *rest, first if tied else ())
    if not leaves:
        return None
    words = [
        f"{path!r} on {name_ranks(sorted(ranks))}{' (no majority: any of them may be wrong)' if path in torn else ''}"
        for path, ranks in leaves.items()
    ]
    more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    path, ranks = next(iter(leaves.items()))
    return DivergentReplicas(
        f"replicas differ in save {save} of run {run!r}: {'; '.join(words[:_SHOWN])}{more}",
        hint="if ranks are meant to differ here, wrap the part in PerRank; if they never were in step, let them begin "
        "with equal parameters, as DistributedDataParallel does; else what these ranks run on computed or kept "
        "something wrong: go on from an older checkpoint without it",
        run=run,
        save=save,
        path=path,
        ranks=tuple(sorted(ranks)),
        leaves=tuple((path, tuple(sorted(ranks))) for path, ranks in leaves.items()),
    )


def _parties(groups: Iterable[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(sorted((tuple(sorted(ranks)) for ranks in groups), key=lambda ranks: (-len(ranks), ranks)))
