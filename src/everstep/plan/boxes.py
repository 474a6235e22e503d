"""Row-major arithmetic: where the elements of a box lie in the bytes of another."""

from __future__ import annotations

import math
from collections.abc import Sequence

from everstep.format.box import Box

__all__ = ["affine_shift", "first_inside", "flat_index", "slabs"]


def flat_index(shape: Sequence[int], position: Sequence[int]) -> int:
    """The row-major number of an element of a tensor of this shape."""
    index = 0
    for extent, at in zip(shape, position, strict=True):
        index = index * extent + at
    return index


def first_inside(shape: Sequence[int], box: Box, start: int) -> int | None:
    """The number of the first element of ``box``, not empty, at or after element ``start``; None: there is none.

    Numbers are row-major in a tensor of ``shape``, which contains the box. O(dimensions).
    """
    position = [0] * len(shape)
    rest = start
    for d in range(len(shape) - 1, -1, -1):
        rest, position[d] = divmod(rest, shape[d])
    if rest:
        return None  # past the end
    for d, (at, offset, size) in enumerate(zip(position, box.offsets, box.sizes, strict=True)):
        if at < offset:  # before the box in this row: its first element there
            return flat_index(shape, [*position[:d], *box.offsets[d:]])
        if at >= offset + size:  # behind the box in this row: the next row that it has
            for up in range(d - 1, -1, -1):
                if position[up] + 1 < box.offsets[up] + box.sizes[up]:
                    return flat_index(shape, [*position[:up], position[up] + 1, *box.offsets[up + 1 :]])
            return None
    return start


def affine_shift(shard: Box, wanted: Box) -> int | None:
    """How far the two boxes' bytes lie apart, in elements, when one shift carries all shared elements over.

    With an answer ``s``, element ``n`` of ``shard`` that is in ``wanted`` is its element ``n + s``, and each ``n + s``
    in range is shared. So it is when the boxes agree in all dimensions but the first that is
    longer than one. None: they do not.
    """
    outer = 0
    while outer < len(shard.sizes) and shard.sizes[outer] == wanted.sizes[outer] == 1:
        if shard.offsets[outer] != wanted.offsets[outer]:
            return None
        outer += 1
    if shard.offsets[outer + 1 :] != wanted.offsets[outer + 1 :]:
        return None
    if shard.sizes[outer + 1 :] != wanted.sizes[outer + 1 :]:
        return None
    if outer == len(shard.sizes):
        return 0
    row = math.prod(shard.sizes[outer + 1 :])
    return (shard.offsets[outer] - wanted.offsets[outer]) * row


def slabs(shape: Sequence[int], start: int, end: int) -> list[tuple[Box, int]]:
    """Elements ``start`` to ``end`` of a tensor as boxes, each contiguous, with the number of its first element.

    At most two for each dimension and one more, in order.
    """
    if start >= end:
        return []
    if not shape:
        return [(Box((), ()), 0)]
    found: list[tuple[Box, int]] = []

    def cut(outer: tuple[int, ...], base: int, low: int, high: int) -> None:
        """Elements ``low`` to ``high`` of the part at position ``outer``, whose first has the number ``base``."""
        depth = len(outer)
        row = math.prod(shape[depth + 1 :])
        first, last = low // row, high // row
        if low % row:  # the tail of a row that begins before
            stop = min(high, (first + 1) * row)
            cut((*outer, first), base + first * row, low - first * row, stop - first * row)
            first += 1
            if stop == high:
                return
        if last > first:  # whole rows
            offsets = (*outer, first, *(0,) * (len(shape) - depth - 1))
            sizes = (*(1,) * depth, last - first, *shape[depth + 1 :])
            found.append((Box(offsets, sizes), base + first * row))
        if high % row:  # the head of a row that ends behind
            cut((*outer, last), base + last * row, 0, high - last * row)

    cut((), 0, start, end)
    return found
