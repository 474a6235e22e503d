"""Chunks to boxes, against NumPy."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from everstep.format.box import Box
from everstep.format.index import Chunk
from everstep.plan.requests import ChunkRead
from everstep.transfer.placing import copy_bytes, place, straight


def cut(box):
    """The box as an index."""
    return tuple(slice(o, o + n) for o, n in zip(box.offsets, box.sizes, strict=True))


@st.composite
def cases(draw):
    """A tensor's shape, a shard of it, a wanted box, the item's bytes and a chunk's range."""
    shape = tuple(draw(st.lists(st.integers(1, 6), max_size=4)))

    def box():
        offsets = tuple(draw(st.integers(0, n - 1)) for n in shape)
        return Box(offsets, tuple(draw(st.integers(1, n - o)) for n, o in zip(shape, offsets, strict=True)))

    shard, item = box(), draw(st.sampled_from([1, 2, 3, 8]))
    start = draw(st.integers(0, shard.elements * item - 1))
    end = draw(st.integers(start + 1, shard.elements * item))
    return shape, shard, box(), item, start, end


@given(cases())
def test_place(case):
    """A chunk's bytes land where they belong and nowhere else, also when it begins inside an element."""
    shape, shard, wanted, item, start, end = case
    whole = np.random.default_rng(0).integers(0, 255, (*shape, item), np.uint8)
    body = whole[cut(shard)].tobytes()[start:end]
    read = ChunkRead(
        path="p", rank=0, shard_box=shard, start=start, chunk=Chunk("", 0, 0, end - start), wanted=(0,)
    )
    marks = np.zeros(shard.elements * item, bool)
    marks[start:end] = True
    known = np.zeros((*shape, item), bool)
    known[cut(shard)] = marks.reshape((*shard.sizes, item))
    into = bytearray(b"\xee" * (wanted.elements * item))
    place(read, memoryview(body), wanted, memoryview(into))
    expected = np.where(known[cut(wanted)], whole[cut(wanted)], 0xEE).astype(np.uint8)
    assert bytes(into) == expected.tobytes()
    at = straight(read, wanted, len(into))
    if at is not None:
        assert bytes(into[at : at + len(body)]) == body


def test_large_copies():
    """Memory of any size is copied whole."""
    source = np.random.default_rng(0).integers(0, 255, 300_000, np.uint8)
    into = bytearray(300_000)
    copy_bytes(memoryview(into), memoryview(source))
    assert bytes(into) == source.tobytes()
