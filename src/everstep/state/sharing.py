"""Which arrays share memory, and which of them holds the bytes of the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np

__all__ = ["Extent", "Own", "Span", "Tie", "View", "row_major", "share"]

_MAP_ELEMENTS: Final = 2**28


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Where an array lies: ``strides`` in elements and not negative, ``address`` in bytes.

    Arrays of different ``space`` (framework, device, dtype) are never tied to each other.
    """

    space: tuple[str, ...]
    address: int
    item: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def elements(self) -> int:
        """How many elements of memory it reaches over, from the first to the last."""
        if 0 in self.shape:
            return 0
        return 1 + sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True))

    @property
    def end(self) -> int:
        """The address after its last element."""
        return self.address + self.elements * self.item

    @property
    def size(self) -> int:
        """How many elements its shape has."""
        size = 1
        for n in self.shape:
            size *= n
        return size

    @property
    def repeats(self) -> bool:
        """Whether it may show one element of memory more than once, as an expanded array does."""
        reach = 0
        for stride, n in sorted((s, n) for n, s in zip(self.shape, self.strides, strict=True) if n != 1):
            if stride <= reach:
                return 0 not in self.shape
            reach += (n - 1) * stride
        return False

    @property
    def dense(self) -> bool:
        """Whether it is row-major without gaps."""
        return self.strides_that_matter() == _matter(self.shape, row_major(self.shape))

    def strides_that_matter(self) -> tuple[int, ...]:
        """The strides of dimensions with more than one element; the others are arbitrary."""
        return _matter(self.shape, self.strides)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """An array inside another one, in elements from that one's first, it being contiguous."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of memory: ``elements`` from ``address`` on."""

    address: int
    elements: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """It holds its bytes: its own elements row-major, or a span of memory in which it is a view."""

    span: Span | None = None
    view: View | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tie:
    """Its bytes are those of the array at position ``of``: all of it, or a view into it."""

    of: int
    view: View | None = None


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides, in elements, of a contiguous array."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)


def share(extents: Sequence[Extent | None]) -> list[Own | Tie]:
    """For each array, whether it holds its bytes or is tied to another one; None stands for one that cannot be.

    Of arrays that overlap, the first holds the bytes: its own when it is contiguous and covers the others,
    else the span of memory that covers all of them. Arrays that merely interleave, without one common
    element, stay apart.
    """
    found: list[Own | Tie] = [Own()] * len(extents)
    placed = sorted(
        ((e.space, e.address, n, e) for n, e in enumerate(extents) if e is not None and e.size),
        key=lambda item: item[:3],
    )
    for _, members in groupby(placed, key=lambda item: item[0]):
        for cluster in _clusters([(n, e) for _, _, n, e in members]):
            for n, decision in _decide(cluster):
                found[n] = decision
    return found


def _matter(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    return tuple(stride for n, stride in zip(shape, strides, strict=True) if n != 1)


_Member = tuple[int, Extent]


def _clusters(members: list[_Member]) -> Iterable[list[_Member]]:
    """Groups whose memory overlaps or interleaves; the members come by address."""
    cluster: list[_Member] = []
    end = 0
    for n, extent in members:
        if cluster and extent.address >= end:
            yield sorted(cluster, key=lambda member: member[0])
            cluster = []
        end = max(end, extent.end) if cluster else extent.end
        cluster.append((n, extent))
    if cluster:
        yield sorted(cluster, key=lambda member: member[0])


def _decide(cluster: list[_Member]) -> Iterable[tuple[int, Own | Tie]]:
    first, extent = cluster[0]
    if len(cluster) == 1:
        yield first, _alone(extent)
        return
    if all(_same(extent, other) for _, other in cluster):
        yield first, _alone(extent)
        yield from ((n, Tie(of=first)) for n, _ in cluster[1:])
        return
    start = min(e.address for _, e in cluster)
    end = max(e.end for _, e in cluster)
    aligned = all((e.address - start) % e.item == 0 for _, e in cluster)
    if not aligned or not _overlap(cluster, start, end):
        yield from _apart(cluster)
        return
    if extent.dense and extent.address == start and extent.end == end:
        yield first, Own()
    else:
        span = Span(address=start, elements=(end - start) // extent.item)
        yield first, Own(span=span, view=_view(extent, start))
    for n, e in cluster[1:]:
        yield n, Tie(of=first, view=None if _same(e, extent) else _view(e, start))


def _apart(cluster: list[_Member]) -> Iterable[tuple[int, Own | Tie]]:
    seen: dict[Any, int] = {}
    for n, e in cluster:
        key = (e.address, e.shape, e.strides_that_matter())
        yield (n, Tie(of=seen[key])) if key in seen else (n, _alone(e))
        seen.setdefault(key, n)


def _alone(extent: Extent) -> Own:
    """An array that repeats its own elements (stride 0) is kept as the memory behind it."""
    if not extent.repeats:
        return Own()
    span = Span(address=extent.address, elements=extent.elements)
    return Own(span=span, view=_view(extent, extent.address))


def _view(extent: Extent, start: int) -> View:
    offset = (extent.address - start) // extent.item
    return View(shape=extent.shape, strides=extent.strides, offset=offset)


def _same(one: Extent, other: Extent) -> bool:
    return (
        one.address == other.address
        and one.shape == other.shape
        and one.strides_that_matter() == other.strides_that_matter()
    )


def _overlap(cluster: list[_Member], start: int, end: int) -> bool:
    """Whether two different members have an element in common: marked, one after another, on a map of bytes."""
    seen: dict[Any, Extent] = {}
    for _, e in cluster:
        seen.setdefault((e.address, e.shape, e.strides_that_matter()), e)
    if sum(e.elements == e.size for e in seen.values()) == len(seen):  # no gaps: the memory itself overlaps
        return True
    item = next(iter(seen.values())).item
    if (
        end - start
    ) // item > _MAP_ELEMENTS:  # too large to look closely: keeping the whole span is right too
        return True
    marks = np.zeros((end - start) // item, dtype=np.bool_)
    for e in seen.values():
        part = np.lib.stride_tricks.as_strided(marks[(e.address - start) // item :], e.shape, e.strides)
        if part.any():
            return True
        part[...] = True
    return False
