"""Bytes of a stored chunk to their places in a wanted box."""

from __future__ import annotations

from everstep.format.box import Box
from everstep.plan.boxes import affine_shift, slabs
from everstep.plan.requests import ChunkRead

__all__ = ["copy_bytes", "place", "straight"]

_SMALL = 64 * 2**10


def straight(read: ChunkRead, wanted: Box, nbytes: int) -> int | None:
    """Where in the wanted box's bytes the whole chunk lies in one stretch; None when it does not."""
    shift = affine_shift(read.shard_box, wanted)
    if shift is None:
        return None
    start = read.start + shift * (nbytes // wanted.elements)
    return start if start >= 0 and start + read.chunk.length <= nbytes else None


def place(read: ChunkRead, chunk: memoryview, wanted: Box, into: memoryview) -> None:
    """Copy what the chunk's bytes hold of a wanted box into that box's bytes."""
    item = into.nbytes // wanted.elements
    shift = affine_shift(read.shard_box, wanted)
    if shift is None:
        _place_boxes(read, chunk, wanted, into)
        return
    start = read.start + shift * item
    low, high = max(0, start), min(into.nbytes, start + chunk.nbytes)
    if low < high:
        copy_bytes(into[low:high], chunk[low - start : high - start])


def copy_bytes(into: memoryview, source: memoryview) -> None:
    """Copy between memories of one length; large ones without the interpreter's lock."""
    if into.nbytes < _SMALL:
        into[:] = source
        return
    import numpy as np  # noqa: PLC0415 - who restores nothing large need not load it

    np.copyto(np.frombuffer(into, np.uint8), np.frombuffer(source, np.uint8))


def _place_boxes(read: ChunkRead, chunk: memoryview, wanted: Box, into: memoryview) -> None:
    """Box by box: the chunk's range is a few boxes of the shard, each meets the wanted box in one box.

    An element's bytes are one dimension more, so that a chunk may begin inside an element.
    """
    import numpy as np  # noqa: PLC0415 - only resharding comes here

    item = into.nbytes // wanted.elements
    shard = Box((*read.shard_box.offsets, 0), (*read.shard_box.sizes, item))
    target = Box((*wanted.offsets, 0), (*wanted.sizes, item))
    source = np.frombuffer(chunk, np.uint8)
    destination = np.frombuffer(into, np.uint8).reshape(target.sizes)
    for slab, first in slabs(shard.sizes, read.start, read.start + chunk.nbytes):
        offsets = tuple(a + b for a, b in zip(slab.offsets, shard.offsets, strict=True))
        lies = Box(offsets, slab.sizes)
        common = lies.intersect(target)
        if common is None:
            continue
        begin = first - read.start
        elements = source[begin : begin + slab.elements].reshape(slab.sizes)
        np.copyto(
            destination[_slices(common.relative_to(target))], elements[_slices(common.relative_to(lies))]
        )


def _slices(box: Box) -> tuple[slice, ...]:
    return tuple(slice(at, at + size) for at, size in zip(box.offsets, box.sizes, strict=True))
