"""The arithmetic of layouts: which boxes of a tensor each rank holds, and who holds a box.

A dimension of a tensor is cut by the placements that name it, from left to right, each cutting what those
before left. A rank's share is kept as runs: pairs of start and stop, in order, neighbours joined. The runs
of all dimensions, multiplied, are its boxes.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, product
from typing import Final

from everstep.format.box import Box
from everstep.format.entries import Layout

__all__ = [
    "Part",
    "coordinates",
    "holders",
    "last_rank",
    "local_shape",
    "make_layout",
    "parts",
    "ranks_of",
    "sharers",
]

_PLACEMENT: Final = re.compile(r"replicate|shard:(\d+)|strided:(\d+):(\d+)")

Run = tuple[int, int]
"""Elements of a dimension, from a start to a stop."""

Cut = tuple[int, int]
"""The number of coordinates that a dimension is cut for, and the factor of a strided cut, else 1."""

_Met = tuple[tuple[int, ...], tuple[Run, ...]]
"""Coordinates, one for each cut of a dimension, and the runs they get that meet a box."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One box that a rank holds, not empty: ``at`` is its place in the local tensor of the mesh ``coordinate``.

    The coordinate is its row-major number in the mesh.
    """

    box: Box
    at: tuple[int, ...]
    coordinate: int


def make_layout(
    *, shape: Sequence[int], ranks: Sequence[int], placements: Sequence[str], names: Sequence[str] = ()
) -> Layout:
    """The layout of a mesh of ``shape`` whose ranks are given row-major, in the shorter form where there is one.

    Raises `ValueError` when the numbers of ranks, placements or names do not fit the mesh.
    """
    mesh, listed = tuple(shape), tuple(ranks)
    if len(listed) != math.prod(mesh) or not listed or len(placements) != len(mesh):
        raise ValueError(f"{len(listed)} ranks and {len(placements)} placements for a mesh of {mesh}")
    if names and len(names) != len(mesh):
        raise ValueError(f"{len(names)} names for a mesh of {mesh}")
    strides = _affine(mesh, listed)
    if strides is None:
        return Layout(shape=mesh, placements=tuple(placements), ranks=listed, names=tuple(names))
    return Layout(
        shape=mesh, placements=tuple(placements), start=listed[0], strides=strides, names=tuple(names)
    )


@lru_cache(maxsize=256)
def ranks_of(layout: Layout) -> tuple[int, ...]:
    """The ranks of the mesh, row-major; one with several devices stands there several times."""
    return layout.ranks or _spread(layout.start, layout.shape, _strides(layout))


@lru_cache(maxsize=1024)
def last_rank(layout: Layout) -> int:
    """The highest rank of the mesh."""
    if layout.ranks:
        return max(layout.ranks)
    steps = zip(layout.shape, _strides(layout), strict=True)
    return layout.start + sum((size - 1) * stride for size, stride in steps)


@lru_cache(maxsize=4096)
def coordinates(layout: Layout, rank: int) -> tuple[int, ...]:
    """The coordinates of the mesh where a rank stands, by their row-major numbers, in order; none outside it."""
    if layout.ranks:
        return _listed(layout.ranks).get(rank, ())
    shape, strides = layout.shape, _strides(layout)
    by_stride = sorted(range(len(shape)), key=lambda d: -strides[d])
    found: list[list[tuple[int, int]]] = [[]]
    rest = [rank - layout.start]
    reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    for d in by_stride:  # from the longest step on, as a number is written in digits
        size, stride = shape[d], strides[d]
        reach -= (size - 1) * stride
        further: list[list[tuple[int, int]]] = []
        left: list[int] = []
        for at, r in zip(found, rest, strict=True):
            low, high = 0, size - 1
            if stride:
                low, high = max(0, -((reach - r) // stride)), min(high, r // stride)
            further += [[*at, (d, c)] for c in range(low, high + 1)]
            left += [r - c * stride for c in range(low, high + 1)]
        found, rest = further, left
    return tuple(
        sorted(_ravel([c for _, c in sorted(at)], shape) for at, r in zip(found, rest, strict=True) if r == 0)
    )


@lru_cache(maxsize=1024)
def shares(layout: Layout) -> int:
    """Into how many boxes it may cut a dimension, all ranks together: a bound."""
    factors = [int(placement.split(":")[2]) for placement in layout.placements if placement.count(":") == 2]
    return math.prod(layout.shape) * math.prod(factors)


@lru_cache(maxsize=16384)
def parts(layout: Layout, shape: tuple[int, ...], rank: int) -> tuple[Part, ...]:
    """The boxes of a tensor of global ``shape`` that a rank holds, each once, the empty ones left out.

    None for a rank outside the mesh.
    """
    found: dict[Box, Part] = {}
    for coordinate in coordinates(layout, rank):
        runs = _runs(layout, shape, coordinate)
        starts = [tuple(accumulate((stop - start for start, stop in each), initial=0))[:-1] for each in runs]
        for box, at in zip(_boxes(runs), product(*starts), strict=True):
            found.setdefault(box, Part(box=box, at=at, coordinate=coordinate))
    return tuple(found.values())


@lru_cache(maxsize=16384)
def local_shape(layout: Layout, shape: tuple[int, ...], coordinate: int) -> tuple[int, ...]:
    """The shape of the local tensor at a mesh coordinate, given by its row-major number."""
    return tuple(sum(stop - start for start, stop in runs) for runs in _runs(layout, shape, coordinate))


@lru_cache(maxsize=4096)
def sharers(layout: Layout, rank: int, coordinate: int | None = None) -> tuple[int, ...]:
    """The ranks that hold the same boxes as this one, sorted, this one among them; none outside the mesh.

    A rank that stands at several coordinates may share the boxes of each with other ranks: ``coordinate`` says
    which, by its row-major number; by default its first.
    """
    places = coordinates(layout, rank)
    if not places:
        return ()
    at = _unravel(places[0] if coordinate is None else coordinate, layout.shape)
    return _group(layout, tuple(at[d] for d in _cutting(layout)))


def holders(layout: Layout, shape: tuple[int, ...], box: Box) -> Iterator[tuple[tuple[int, ...], Box]]:
    """Who holds elements of ``box``: for each box held that meets it, the ranks that have it, sorted.

    The boxes are whole, as `parts` gives them; each comes once. Time is that of what is found, not that of
    the mesh.
    """
    if 0 in box.sizes:
        return
    met: list[tuple[_Met, ...]] = []
    order: list[int] = []
    for extent, offset, size, (dims, cuts) in zip(
        shape, box.offsets, box.sizes, _cuts(layout, len(shape)), strict=True
    ):
        met.append(_met(cuts, extent, offset, offset + size) if cuts else (((), ((0, extent),)),))
        order += dims
    back = sorted(range(len(order)), key=order.__getitem__)
    groups = _groups(layout)
    for chosen in product(*met):
        by_dim = [c for each, _ in chosen for c in each]
        at = tuple([by_dim[n] for n in back])
        ranks = groups.get(at)
        if ranks is None:
            ranks = groups[at] = _group(layout, at)
        for held in _boxes([runs for _, runs in chosen]):
            yield ranks, held


# --- the mesh


def _spread(start: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    found = [start]
    for size, stride in zip(shape, strides, strict=True):
        found = [rank + n * stride for rank in found for n in range(size)]
    return tuple(found)


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], math.prod(shape)
    for size in shape:
        step //= size
        strides.append(step)
    return tuple(strides)


def _strides(layout: Layout) -> tuple[int, ...]:
    return layout.strides or _row_major(layout.shape)


def _affine(shape: tuple[int, ...], ranks: tuple[int, ...]) -> tuple[int, ...] | None:
    """The strides of a regular mesh, none where they are row-major by ones; None for another mesh."""
    steps = _row_major(shape)
    strides = tuple(
        ranks[step] - ranks[0] if size > 1 else 0 for size, step in zip(shape, steps, strict=True)
    )
    if min(strides) < 0 or _spread(ranks[0], shape, strides) != ranks:
        return None
    return () if all(a == b for n, a, b in zip(shape, strides, steps, strict=True) if n > 1) else strides


def _ravel(at: Sequence[int], shape: tuple[int, ...]) -> int:
    number = 0
    for c, size in zip(at, shape, strict=True):
        number = number * size + c
    return number


def _unravel(number: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    at = []
    for size in reversed(shape):
        number, c = divmod(number, size)
        at.append(c)
    return tuple(reversed(at))


@lru_cache(maxsize=64)
def _listed(ranks: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
    places: dict[int, list[int]] = {}
    for place, rank in enumerate(ranks):
        places.setdefault(rank, []).append(place)
    return {rank: tuple(found) for rank, found in places.items()}


@lru_cache(maxsize=64)
def _groups(layout: Layout) -> dict[tuple[int, ...], tuple[int, ...]]:  # noqa: ARG001 - one for each layout
    """The groups of sharers of a layout that were asked for, by the coordinates that `_group` takes."""
    return {}


def _group(layout: Layout, at: tuple[int, ...]) -> tuple[int, ...]:
    """The ranks at these coordinates of the mesh dimensions that cut, and at any of those that replicate."""
    cutting = dict(zip(_cutting(layout), at, strict=True))
    spans = [(cutting[d],) if d in cutting else range(size) for d, size in enumerate(layout.shape)]
    if layout.ranks:
        found = {layout.ranks[_ravel(c, layout.shape)] for c in product(*spans)}
    else:
        steps = [[c * stride for c in span] for span, stride in zip(spans, _strides(layout), strict=True)]
        found = {layout.start + sum(each) for each in product(*steps)}
    return tuple(sorted(found))


# --- the cuts


@lru_cache(maxsize=1024)
def _cutting(layout: Layout) -> tuple[int, ...]:
    """The mesh dimensions that cut the tensor."""
    return tuple(d for d, placement in enumerate(layout.placements) if placement != "replicate")


@lru_cache(maxsize=1024)
def _cuts(layout: Layout, ndim: int) -> tuple[tuple[tuple[int, ...], tuple[Cut, ...]], ...]:
    """For each dimension of a tensor the mesh dimensions that cut it, and how."""
    dims: list[list[int]] = [[] for _ in range(ndim)]
    cuts: list[list[Cut]] = [[] for _ in range(ndim)]
    for d, (size, placement) in enumerate(zip(layout.shape, layout.placements, strict=True)):
        match = _PLACEMENT.fullmatch(placement)
        if match is None:
            raise ValueError(f"{placement!r} is no placement")
        if placement != "replicate":
            dim = int(match[1] or match[2])
            dims[dim].append(d)
            cuts[dim].append((size, int(match[3] or 1)))
    return tuple((tuple(where), tuple(how)) for where, how in zip(dims, cuts, strict=True))


def _runs(layout: Layout, shape: tuple[int, ...], coordinate: int) -> list[tuple[Run, ...]]:
    at = _unravel(coordinate, layout.shape)
    return [
        _share(cuts, tuple(at[d] for d in dims), extent)
        for extent, (dims, cuts) in zip(shape, _cuts(layout, len(shape)), strict=True)
    ]


@lru_cache(maxsize=8192)
def _share(cuts: tuple[Cut, ...], at: tuple[int, ...], extent: int) -> tuple[Run, ...]:
    runs: tuple[Run, ...] = ((0, extent),) if extent else ()
    for cut, c in zip(cuts, at, strict=True):
        runs = _cut(runs, cut, c)
    return runs


def _cut(runs: tuple[Run, ...], cut: Cut, at: int) -> tuple[Run, ...]:
    """What the coordinate ``at`` gets: of each of ``factor`` parts its chunk; torch.chunk rounds sizes up too."""
    size, factor = cut
    ends = list(accumulate(stop - start for start, stop in runs))
    total = ends[-1] if ends else 0
    part = -(-total // factor)
    found: list[Run] = []
    for begin in range(0, total, part or 1):
        length = min(part, total - begin)
        chunk = -(-length // size)
        low, high = min(at * chunk, length), min((at + 1) * chunk, length)
        n = bisect_right(ends, begin + low)
        low, high = begin + low, begin + high
        while low < high:
            stop = runs[n][1]
            start = stop - (ends[n] - low)
            stop -= max(0, ends[n] - high)
            if found and found[-1][1] == start:
                found[-1] = (found[-1][0], stop)
            else:
                found.append((start, stop))
            low = ends[n]
            n += 1
    return tuple(found)


@lru_cache(maxsize=4096)
def _met(cuts: tuple[Cut, ...], extent: int, low: int, high: int) -> tuple[_Met, ...]:
    """The coordinates, one for each cut, that get elements from ``low`` to ``high``, with those of their runs."""
    found: list[_Met] = []

    def descend(at: tuple[int, ...], runs: tuple[Run, ...]) -> None:
        if len(at) == len(cuts):
            found.append((at, tuple(run for run in runs if run[0] < high and low < run[1])))
            return
        cut = cuts[len(at)]
        for c in sorted(_reached(cut, runs, low, high)):
            descend((*at, c), _cut(runs, cut, c))

    descend((), ((0, extent),))
    return tuple(found)


def _reached(cut: Cut, runs: tuple[Run, ...], low: int, high: int) -> set[int]:
    """The coordinates that get elements from ``low`` to ``high``, which the runs have some of."""
    size, factor = cut
    before = inside = total = 0
    for start, stop in runs:  # the runs ascend, so what they have from low to high is one stretch of them
        total += stop - start
        before += max(0, min(stop, low) - start)
        inside += max(0, min(stop, high) - max(start, low))
    part = -(-total // factor)
    first, last = before // part, (before + inside - 1) // part
    found: set[int] = set()
    for j in {first, min(first + 1, last), last}:  # those between are whole and of one size
        length = min(part, total - j * part)
        chunk = -(-length // size)
        begin, end = max(before - j * part, 0), min(before + inside - j * part, length)
        found.update(range(begin // chunk, (end - 1) // chunk + 1))
    return found


def _boxes(runs: Sequence[tuple[Run, ...]]) -> Iterator[Box]:
    for chosen in product(*runs):
        yield Box(tuple([start for start, _ in chosen]), tuple([stop - start for start, stop in chosen]))
