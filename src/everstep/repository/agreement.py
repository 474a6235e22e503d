"""That all ranks describe one and the same state; where they do not, what differs, by name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from everstep.errors import DisagreeingPlans
from everstep.format.entries import Alias, Container, Entry, Layout, Tensor, Value
from everstep.format.layouts import last_rank
from everstep.format.manifest import Manifest
from everstep.format.outline import Outline
from everstep.format.own import shared_entries
from everstep.format.records import PlanRecord
from everstep.repository.arrivals import name_ranks

__all__ = ["check_agreement", "check_layouts", "disagreement"]

_SHOWN_CHARS = 120


def check_agreement(plan: PlanRecord, outlines: Sequence[Outline]) -> None:
    """Raise `DisagreeingPlans` when ranks computed different plans, naming the first leaf that differs.

    ``outlines`` come in the order of ranks. Plans that are equal mean that all is equal that ranks have in common.
    """
    _check_shape(plan, outlines)
    groups: dict[str, list[int]] = defaultdict(list)
    for outline in outlines:
        groups[outline.plan].append(outline.rank)
    if len(groups) == 1:
        return
    entries = {digest: _by_path(outlines[ranks[0]]) for digest, ranks in groups.items()}
    first, *others = entries.values()
    for other in others:
        path = _first_difference(first, other)
        if path is not None:
            raise disagreement(
                plan, path, _grouped((entries[digest].get(path), groups[digest]) for digest in groups)
            )
    computed = "; ".join(f"{name_ranks(ranks)} computed {digest[:16]}" for digest, ranks in groups.items())
    raise DisagreeingPlans(
        f"the ranks disagree about save {plan.save} of run {plan.run!r}: {computed}",
        hint="all ranks must save the same names, shapes and layouts",
        run=plan.run,
        save=plan.save,
        ranks=tuple(tuple(ranks) for ranks in groups.values()),
    )


def _check_shape(plan: PlanRecord, outlines: Sequence[Outline]) -> None:
    """Each of this world, and none that leaves out what it cannot."""
    for outline in outlines:
        if outline.world != plan.world:
            raise _odd(plan, outline.rank, f"counts {outline.world} ranks, and the save has {plan.world}")
        if outline.compact and outline.rank == 0:
            raise _odd(plan, 0, "leaves out entries, which only other ranks may")
        if outline.compact and outline.plan != outlines[0].plan:
            raise _odd(plan, outline.rank, "leaves out entries that rank 0 describes differently")


def _grouped(told: Iterable[tuple[Entry | None, Sequence[int]]]) -> list[tuple[Entry | None, list[int]]]:
    """Descriptions, each once, with all ranks that give it."""
    found: list[tuple[Entry | None, list[int]]] = []
    for entry, ranks in told:
        same = next((place for place in found if place[0] == entry), None)
        if same is None:
            found.append((entry, list(ranks)))
        else:
            same[1].extend(ranks)
    return found


def check_layouts(manifest: Manifest) -> None:
    """Raise `DisagreeingPlans` for a layout that names ranks beyond the world."""
    for entry in manifest.entries:
        if isinstance(entry, Tensor) and entry.layout is not None:
            last = last_rank(entry.layout)
            if last >= manifest.world:
                raise DisagreeingPlans(
                    f"the layout of {entry.path!r} names rank {last}, and save {manifest.save} of run"
                    f" {manifest.run!r} has {manifest.world} ranks, counted from 0",
                    hint="the mesh must be one of the ranks that save",
                    run=manifest.run,
                    save=manifest.save,
                    path=entry.path,
                    ranks=(last,),
                )


def disagreement(
    plan: PlanRecord, path: str, told: Iterable[tuple[Entry | None, Sequence[int]]]
) -> DisagreeingPlans:
    """The error for a leaf that ranks describe differently: each description with its ranks."""
    found = [(entry, sorted(ranks)) for entry, ranks in told]
    words = "; ".join(f"{name_ranks(ranks)}: {_described(entry)}" for entry, ranks in found)
    values = all(isinstance(entry, Value) for entry, _ in found)
    return DisagreeingPlans(
        f"the ranks describe {path!r} differently in save {plan.save} of run {plan.run!r}: {words}",
        hint="wrap what differs by rank in PerRank"
        + ("" if values else ", and the parts that only some ranks have in Stage"),
        run=plan.run,
        save=plan.save,
        path=path,
        ranks=tuple(tuple(ranks) for _, ranks in found),
    )


def _odd(plan: PlanRecord, rank: int, what: str) -> DisagreeingPlans:
    return DisagreeingPlans(
        f"rank {rank} {what} (save {plan.save} of run {plan.run!r})",
        hint="start all ranks alike, with one version of everstep",
        run=plan.run,
        save=plan.save,
        ranks=((rank,),),
    )


def _by_path(outline: Outline) -> dict[str, Entry]:
    return {entry.path: entry for entry in shared_entries(outline.entries)}


def _first_difference(ours: Mapping[str, Entry], theirs: Mapping[str, Entry]) -> str | None:
    """The first leaf that differs, in pre-order, else the first container; None when all is the same."""
    containers: list[str] = []
    for path in (*theirs, *ours):
        a, b = ours.get(path), theirs.get(path)
        if a == b:
            continue
        if isinstance(a, Container) and isinstance(b, Container) and a.type == b.type:
            containers.append(path)  # its children tell what differs, unless it is their order
        else:
            return path
    return containers[0] if containers else None


def _described(entry: Entry | None) -> str:
    match entry:
        case None:
            return "there is none"
        case Tensor():
            layout = "" if entry.layout is None else f", {_laid_out(entry.layout)}"
            more = f", {_cut(entry.extra)}" if entry.extra else ""
            return f"{entry.framework} tensor {entry.dtype}{list(entry.shape)}{layout}{more}"
        case Value():
            return f"value {_cut(entry.value)}"
        case Alias():
            view = "" if entry.shape is None else f", as a view {list(entry.shape)}"
            return f"the memory of {entry.of!r}{view}"
        case Container():
            keys = f"keys {_cut(entry.keys)}" if entry.keys is not None else f"{entry.length} children"
            return f"{entry.type} with {keys}"


def _laid_out(layout: Layout) -> str:
    return (
        f"{', '.join(layout.placements) or 'whole'} on a mesh {list(layout.shape)} of ranks"
        f" {_cut(layout.ranks) if layout.ranks else f'{layout.start} to {last_rank(layout)}'}"
    )


def _cut(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
