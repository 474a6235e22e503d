"""Sums over boxes, by which it is seen without listing them whether they make up tensors exactly once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

from everstep.format.digests import digest_of
from everstep.format.entries import Entry, Tensor
from everstep.format.index import Shard

__all__ = ["Tally", "added", "box_tally", "tally", "whole"]

Tally = tuple[int, int]
"""The number of elements, and twice the sum of their row-major numbers."""

_MODULUS: Final = 2**64


def box_tally(shape: tuple[int, ...], offsets: tuple[int, ...], sizes: tuple[int, ...]) -> Tally:
    """The tally of one box of a tensor of ``shape``. That of the whole, with n elements, is (n, n * (n - 1))."""
    elements = math.prod(sizes)
    place, stride = 0, 1
    for extent, offset, size in zip(reversed(shape), reversed(offsets), reversed(sizes), strict=True):
        place += stride * (2 * offset + size - 1)
        stride *= extent
    return elements, elements * place


def tally(shards: Iterable[Shard], entries: Mapping[str, Entry]) -> Tally:
    """The tallies of boxes of tensors in ``entries``, each weighted by a number made of its path, modulo 2^64.

    Boxes that make up tensors exactly once have the tally of `whole`. Others have another one, but for cases that
    nobody makes by accident: a box of a leaf too many and another of its boxes too few differ in the second sum.
    """
    count = place = 0
    weights: dict[str, int] = {}
    for shard in shards:
        tensor = entries[shard.path]
        assert isinstance(tensor, Tensor), shard.path
        weight = weights.get(shard.path) or weights.setdefault(shard.path, _weight(shard.path))
        elements, places = box_tally(tensor.shape, shard.offsets, shard.sizes)
        count += weight * elements
        place += weight * places
    return count % _MODULUS, place % _MODULUS


def whole(tensors: Iterable[Tensor]) -> Tally:
    """The tally of tensors whose every element is there once."""
    count = place = 0
    for tensor in tensors:
        weight, elements = _weight(tensor.path), math.prod(tensor.shape)
        count += weight * elements
        place += weight * elements * (elements - 1)
    return count % _MODULUS, place % _MODULUS


def added(tallies: Iterable[Tally]) -> Tally:
    """The sum of weighted tallies."""
    count = place = 0
    for elements, places in tallies:
        count += elements
        place += places
    return count % _MODULUS, place % _MODULUS


def _weight(path: str) -> int:
    """Odd, so that no number of elements is lost in it."""
    return int(digest_of(path.encode("utf-8", "surrogatepass"))[:16], 16) | 1
