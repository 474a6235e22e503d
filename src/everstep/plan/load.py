"""Which bytes a restore reads: the wanted boxes met with the boxes that ranks stored."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from everstep.errors import InvalidManifest, MissingElements
from everstep.format.box import Box
from everstep.format.index import Index, Shard
from everstep.plan.boxes import first_inside
from everstep.plan.joining import MAX_GAP, MAX_READ, joined
from everstep.plan.requests import ChunkRead, Read

__all__ = ["Loadable", "plan_load"]

_FEW: Final = 8
"""So many stored boxes are looked at one by one."""


class Loadable(Protocol):
    """A box that a restore needs."""

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


def plan_load(
    wanted: Sequence[Loadable],
    indexes: Sequence[Index],
    *,
    max_read: int = MAX_READ,
    max_gap: int = MAX_GAP,
) -> tuple[Read, ...]:
    """The reads that bring every wanted byte, only chunks that hold one, neighbours in a pack joined.

    Stored and wanted boxes may be cut in any way. How chunks are joined says `joined`: at most 1/32 of the bytes is
    read for nothing. Reads come in the order of the wanted boxes they serve first, so that boxes are
    completed early. Equal arguments give equal plans. Time is O(shards of the wanted paths + intersections +
    chunks read), without the logarithms of sorting.

    Raises `MissingElements` naming the path when the indexes do not cover a wanted box, and
    `InvalidManifest` when they contradict themselves.
    """
    stored = _stored(wanted, indexes)
    starts: dict[tuple[int, int], tuple[Box, list[int]]] = {}
    found: dict[tuple[int, int, int], list[int]] = {}
    for position, box in enumerate(wanted):
        if not box.nbytes:
            continue
        for part, (whole, i, s) in _cover(box, stored.get(box.path, [])):
            shard = indexes[i].shards[s]
            if (i, s) not in starts:
                starts[i, s] = (whole, _starts(shard))
            for number in _chunks(shard, whole, part, box, starts[i, s][1]):
                found.setdefault((i, s, number), []).append(position)
    return joined(_chunk_reads(found, indexes, starts), max_read=max_read, max_gap=max_gap)


_Place = tuple[Box, int, int]
"""A stored box, with the positions of its index and of its shard there."""


class _Many:
    """The stored boxes of one tensor, found by where they begin in the dimension that tells most of them apart."""

    def __init__(self, places: Sequence[_Place]) -> None:
        first = places[0][0]
        d = max(range(len(first.sizes)), key=lambda d: len({box.offsets[d] for box, _, _ in places}))
        self._dimension = d
        self._places = sorted(places, key=lambda place: place[0].offsets[d])
        self._starts = [box.offsets[d] for box, _, _ in self._places]
        self._reach = max(box.sizes[d] for box, _, _ in places)

    def near(self, wanted: Box) -> Sequence[_Place]:
        """The boxes that may meet a wanted one of as many dimensions."""
        at = wanted.offsets[self._dimension]
        low = bisect_right(self._starts, at - self._reach)
        return self._places[low : bisect_left(self._starts, at + wanted.sizes[self._dimension])]


_Stored = list[_Place] | _Many


def _stored(wanted: Sequence[Loadable], indexes: Sequence[Index]) -> dict[str, _Stored]:
    """By path: each stored box once; of equal boxes the first."""
    dimensions = {box.path: len(box.box.sizes) for box in wanted}
    places: dict[str, list[_Place]] = {}
    for i, index in enumerate(indexes):
        for s, shard in enumerate(index.shards):
            if shard.path not in dimensions:
                continue
            if len(shard.sizes) != dimensions[shard.path]:
                raise InvalidManifest(
                    f"{shard.path}: a shard has {len(shard.sizes)} dimensions, the tensor {dimensions[shard.path]}",
                    path=shard.path,
                )
            places.setdefault(shard.path, []).append((Box(shard.offsets, shard.sizes), i, s))
    return {path: _sorted(found) for path, found in places.items()}


def _sorted(places: list[_Place]) -> _Stored:
    if len(places) == 1:
        return places
    once: dict[Box, _Place] = {}
    for place in places:
        once.setdefault(place[0], place)
    found = list(once.values())
    return found if len(found) <= _FEW else _Many(found)


def _cover(wanted: Loadable, stored: _Stored) -> list[tuple[Box, _Place]]:
    """The stored boxes that hold elements of a wanted one, and which; raises unless they hold each exactly once."""
    near = stored.near(wanted.box) if isinstance(stored, _Many) else stored
    if len(near) == 1 and near[0][0] == wanted.box:
        return [(wanted.box, near[0])]
    found: list[tuple[Box, _Place]] = []
    for place in near:
        part = place[0].intersect(wanted.box)
        if part is not None:
            found.append((part, place))
    parts = [part for part, _ in found]
    covered = sum(part.elements for part in parts)
    if _overlap(parts):
        raise InvalidManifest(f"{wanted.path}: shards overlap", path=wanted.path)
    if covered != wanted.box.elements:
        raise MissingElements(
            f"{wanted.path}: the checkpoint holds {covered} of the {wanted.box.elements} elements wanted",
            hint="an index is missing, or the tensor had another shape when it was saved",
            path=wanted.path,
        )
    return found


def _overlap(parts: list[Box]) -> bool:
    """Whether two of the boxes share an element: swept along the dimension that tells most of them apart."""
    if len(parts) < 2 or not parts[0].sizes:
        return len(parts) > 1
    sweep = max(range(len(parts[0].sizes)), key=lambda d: len({part.offsets[d] for part in parts}))
    active: list[Box] = []
    for part in sorted(parts, key=lambda part: part.offsets[sweep]):
        start = part.offsets[sweep]
        active = [other for other in active if other.offsets[sweep] + other.sizes[sweep] > start]
        if any(part.intersect(other) for other in active):
            return True
        active.append(part)
    return False


def _starts(shard: Shard) -> list[int]:
    """Where each chunk begins in the shard's bytes, and the end of the last."""
    starts = [0]
    at = 0
    for chunk in shard.chunks:
        at += chunk.length
        starts.append(at)
    return starts


def _chunks(shard: Shard, whole: Box, part: Box, wanted: Loadable, starts: Sequence[int]) -> Iterator[int]:
    """The numbers of the shard's chunks that hold a byte of ``part``, the shard's share of the wanted box."""
    nbytes = starts[-1]
    item = wanted.nbytes // wanted.box.elements
    if nbytes != item * whole.elements or item * wanted.box.elements != wanted.nbytes:
        raise InvalidManifest(
            f"{shard.path}: {nbytes} bytes stored for {whole.elements} elements of {item} bytes",
            path=shard.path,
        )
    if part.sizes == whole.sizes:
        yield from range(len(shard.chunks))
        return
    part = part.relative_to(whole)
    done = 0
    while (first := first_inside(shard.sizes, part, done // item)) is not None:
        number = bisect_right(starts, max(first * item, done)) - 1
        if number == len(shard.chunks):
            return
        yield number
        done = starts[number + 1]


def _chunk_reads(
    found: dict[tuple[int, int, int], list[int]],
    indexes: Sequence[Index],
    starts: dict[tuple[int, int], tuple[Box, list[int]]],
) -> Iterator[tuple[str, ChunkRead]]:
    for (i, s, number), positions in found.items():
        index, shard = indexes[i], indexes[i].shards[s]
        chunk = shard.chunks[number]
        if not 0 <= chunk.pack < len(index.packs):
            raise InvalidManifest(f"{shard.path}: pack {chunk.pack} of {len(index.packs)}", path=shard.path)
        box, at = starts[i, s]
        yield (
            index.packs[chunk.pack],
            ChunkRead(
                path=shard.path,
                rank=index.rank,
                shard_box=box,
                start=at[number],
                chunk=chunk,
                wanted=tuple(positions),
            ),
        )
