"""Boxes: the part of a tensor that one shard holds."""

from __future__ import annotations

import math

import msgspec

__all__ = ["Box"]


class Box(msgspec.Struct, frozen=True, order=True, gc=False):
    """A hyper-rectangle of a tensor: per dimension an offset and a size, in elements."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    @classmethod
    def whole(cls, shape: tuple[int, ...]) -> Box:
        """All of a tensor of this shape."""
        return cls((0,) * len(shape), shape)

    @property
    def elements(self) -> int:
        """How many elements it has; 1 for a 0-d tensor."""
        return math.prod(self.sizes)

    def within(self, shape: tuple[int, ...]) -> bool:
        """Whether it lies inside a tensor of this shape."""
        return len(self.offsets) == len(self.sizes) == len(shape) and all(
            offset >= 0 and size >= 0 and offset + size <= extent
            for offset, size, extent in zip(self.offsets, self.sizes, shape, strict=True)
        )

    def intersect(self, other: Box) -> Box | None:
        """The elements in both, or None when there are none."""
        offsets = tuple(map(max, self.offsets, other.offsets))
        sizes = tuple(
            min(a + n, b + m) - start
            for a, n, b, m, start in zip(
                self.offsets, self.sizes, other.offsets, other.sizes, offsets, strict=True
            )
        )
        return Box(offsets, sizes) if all(size > 0 for size in sizes) else None

    def relative_to(self, outer: Box) -> Box:
        """The same elements, counted from the corner of a box that contains it."""
        return Box(tuple(a - b for a, b in zip(self.offsets, outer.offsets, strict=True)), self.sizes)
