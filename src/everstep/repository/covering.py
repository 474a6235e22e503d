"""That the boxes which ranks wrote make up each tensor, and that what two ranks wrote of it is the same."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from everstep.errors import DisagreeingPlans
from everstep.format.box import Box
from everstep.format.entries import Entry, Layout, Tensor
from everstep.format.index import Index
from everstep.format.layouts import ranks_of
from everstep.format.outline import Outline, content
from everstep.format.own import own_roots
from everstep.format.records import PlanRecord
from everstep.format.tally import added, box_tally, whole
from everstep.repository.arrivals import name_ranks

__all__ = ["Boxes", "Counts", "adds_up", "check_boxes", "check_claims"]

Boxes = dict[str, dict[Box, dict[str, list[int]]]]
"""By path and box the digests of its bytes, each with the ranks that wrote these."""


def adds_up(entries: Sequence[Entry], outlines: Sequence[Outline]) -> bool:
    """Whether the tallies say that each element of what is not below a ``stage`` is there exactly once."""
    staged = _below_stages(entries)
    tensors = (one for one in entries if isinstance(one, Tensor) and not one.path.startswith(staged))
    return added(outline.held for outline in outlines) == whole(tensors)


def check_claims(plan: PlanRecord, entries: Sequence[Entry], outlines: Sequence[Outline]) -> None:
    """Raise `DisagreeingPlans` for a leaf below a ``stage`` whose boxes do not make it up.

    The ranks of its layout must have written all of it, for these are the ones that a reader asks.
    """
    staged = _below_stages(entries)
    if not staged:
        return
    tensors = {one.path: one for one in entries if isinstance(one, Tensor) and one.path.startswith(staged)}
    boxes: Boxes = {}
    named: Boxes = {}
    for outline in outlines:
        for claim in outline.claims:
            tensor, box = tensors.get(claim.path), Box(claim.offsets, claim.sizes)
            if tensor is None or not box.within(tensor.shape):
                words = f"rank {outline.rank} wrote its {_span(box)}, which no rank describes"
                raise _refused(plan, claim.path, words, [outline.rank])
            claimed(boxes, claim.path, box, claim.content, outline.rank)
            if tensor.layout is None or outline.rank in _members(tensor.layout):
                claimed(named, claim.path, box, claim.content, outline.rank)
    check_boxes(plan, tensors.values(), boxes)
    check_boxes(plan, tensors.values(), named)


@lru_cache(maxsize=256)
def _members(layout: Layout) -> frozenset[int]:
    return frozenset(ranks_of(layout))


def claimed(boxes: Boxes, path: str, box: Box, digest: str, rank: int) -> None:
    """Note that a rank wrote a box."""
    boxes.setdefault(path, {}).setdefault(box, {}).setdefault(digest, []).append(rank)


class Counts:
    """Leaf by leaf what indexes hold, added up one index at a time; then the boxes of the leaves in doubt."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._tensors = {one.path: one for one in entries if isinstance(one, Tensor)}
        self._counts: dict[str, tuple[int, int]] = {}
        self.boxes: Boxes = {}

    def count(self, index: Index) -> None:
        """Add up the elements of an index."""
        for shard in index.shards:
            elements, places = box_tally(self._tensors[shard.path].shape, shard.offsets, shard.sizes)
            before = self._counts.get(shard.path, (0, 0))
            self._counts[shard.path] = (before[0] + elements, before[1] + places)

    def doubtful(self) -> list[Tensor]:
        """The tensors that are not there exactly once."""
        return [
            tensor
            for path, tensor in self._tensors.items()
            if self._counts.get(path, (0, 0))
            != box_tally(tensor.shape, (0,) * len(tensor.shape), tensor.shape)
        ]

    def note(self, index: Index, paths: frozenset[str]) -> None:
        """Take down the boxes that an index has of these tensors."""
        for shard in index.shards:
            if shard.path in paths:
                claimed(self.boxes, shard.path, Box(shard.offsets, shard.sizes), content(shard), index.rank)


def check_boxes(
    plan: PlanRecord,
    tensors: Iterable[Tensor],
    boxes: Mapping[str, Mapping[Box, Mapping[str, Sequence[int]]]],
) -> None:
    """Raise `DisagreeingPlans`, naming leaf and ranks, unless the boxes make up each tensor.

    The same box from several ranks is fine when its bytes are the same; boxes that overlap otherwise, boxes with
    other bytes, and elements that nobody has are not.
    """
    for tensor in tensors:
        found = {box: told for box, told in boxes.get(tensor.path, {}).items() if box.elements}
        for box, told in found.items():
            if len(told) > 1:
                words = "; ".join(
                    f"{name_ranks(list(ranks))}: {digest[:16]}" for digest, ranks in told.items()
                )
                raise _refused(
                    plan,
                    tensor.path,
                    f"ranks wrote other bytes for its {_span(box)}: {words}",
                    *told.values(),
                )
        whose = {box: [rank for ranks in told.values() for rank in ranks] for box, told in found.items()}
        if _tiled(tensor.shape, found):
            continue
        pair = _overlapping(sorted(found))
        if pair is not None:
            a, b = pair
            words = f"{name_ranks(whose[a])} wrote its {_span(a)}, {name_ranks(whose[b])} its {_span(b)}"
            raise _refused(plan, tensor.path, f"{words}: they overlap", whose[a], whose[b])
        if sum(box.elements for box in found) != math.prod(tensor.shape):
            missing = _missing(tensor.shape, found)
            more = "" if missing is None else f", for instance its {_span(missing)}"
            raise _refused(plan, tensor.path, f"no rank wrote all of it{more}", *whose.values())


def _tiled(shape: tuple[int, ...], boxes: Collection[Box]) -> bool:
    """Whether the boxes, no two of them equal, are all the cells of a grid that fills the tensor."""
    cells = 1
    for d, extent in enumerate(shape):
        end = 0
        spans = sorted({(box.offsets[d], box.sizes[d]) for box in boxes})
        for offset, size in spans:
            if offset != end:
                return False
            end += size
        if end != extent:
            return False
        cells *= len(spans)
    return cells == len(boxes)


def _overlapping(boxes: Sequence[Box]) -> tuple[Box, Box] | None:
    """Two boxes that share elements; the boxes come sorted, none of them empty."""
    for n, box in enumerate(boxes):
        for other in boxes[n + 1 :]:
            if other.offsets and other.offsets[0] >= box.offsets[0] + box.sizes[0]:
                break  # all further ones begin behind it
            if box.intersect(other) is not None:
                return box, other
    return None


def _missing(shape: tuple[int, ...], boxes: Iterable[Box]) -> Box | None:
    """A part of a tensor that none of the boxes has."""
    left = [Box.whole(shape)]
    for box in boxes:
        left = [part for one in left for part in _without(one, box)]
        if not left:
            return None
    return left[0]


def _without(box: Box, other: Box) -> Iterator[Box]:
    """A box less another: at most two parts for each dimension."""
    common = box.intersect(other)
    if common is None:
        yield box
        return
    offsets, sizes = list(box.offsets), list(box.sizes)
    for d, (start, size) in enumerate(zip(common.offsets, common.sizes, strict=True)):
        before, behind = start - offsets[d], offsets[d] + sizes[d] - start - size
        if before:
            yield Box(tuple(offsets), (*sizes[:d], before, *sizes[d + 1 :]))
        if behind:
            yield Box((*offsets[:d], start + size, *offsets[d + 1 :]), (*sizes[:d], behind, *sizes[d + 1 :]))
        offsets[d], sizes[d] = start, size


def _below_stages(entries: Sequence[Entry]) -> tuple[str, ...]:
    return tuple(f"{path}/" if path else "" for path, kind in own_roots(entries).items() if kind == "stage")


def _span(box: Box) -> str:
    return f"[{', '.join(f'{at}:{at + size}' for at, size in zip(box.offsets, box.sizes, strict=True))}]"


def _refused(plan: PlanRecord, path: str, what: str, *ranks: Sequence[int]) -> DisagreeingPlans:
    return DisagreeingPlans(
        f"{path!r} in save {plan.save} of run {plan.run!r}: {what}",
        hint="look at how the ranks lay this tensor out; nothing was committed",
        run=plan.run,
        save=plan.save,
        path=path,
        ranks=tuple(tuple(sorted(group)) for group in ranks),
    )
