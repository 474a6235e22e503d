"""Planning a restore: whatever the cuts, exactly the wanted bytes, and no chunk that holds none."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.errors import InvalidManifest, RestoreError
from everstep.format.box import Box
from everstep.format.digests import digest_of
from everstep.format.index import Chunk, Index, Meta, Shard
from everstep.plan import plan_load
from everstep.plan.boxes import slabs


@dataclass(frozen=True)
class Want:
    path: str
    box: Box
    nbytes: int


def region(box):
    """A box as slices."""
    return tuple(slice(o, o + n) for o, n in zip(box.offsets, box.sizes, strict=True))


def make_index(rank, shards, packs, chunk_bytes, gap=0):
    """An index and the bytes of its pack: the chunks of the given (path, box, bytes), one behind the other."""
    pack, out = bytearray(64), []
    for path, box, body in shards:
        chunks = []
        for at in range(0, len(body), chunk_bytes):
            part = body[at : at + chunk_bytes]
            chunks.append(Chunk(digest_of(part), 0, len(pack), len(part)))
            pack += part + bytes(gap)
        out.append(Shard(path=path, offsets=box.offsets, sizes=box.sizes, chunks=tuple(chunks)))
    key = f"packs/00/save/{rank}-0.safetensors"
    packs[key] = bytes(pack)
    return Index(
        format=1, run="r", save="s", rank=rank, world=1, plan="", packs=(key,), entries=(),
        shards=tuple(out), meta=Meta(), bytes=0, stored_bytes=0,
    )  # fmt: skip


def fetch(reads, wanted, packs, item):
    """Do the reads the slow way: element by element from each chunk to each wanted box."""
    got = [np.full((*w.box.sizes, item), 0xEE, np.uint8) for w in wanted]
    for read in reads:
        body = packs[read.key][read.offset : read.offset + read.length]
        assert len(body) == read.length
        for chunk in read.chunks:
            at = chunk.chunk.offset - read.offset
            part = body[at : at + chunk.chunk.length]
            assert digest_of(part) == chunk.chunk.digest
            useful = False
            for w in chunk.wanted:
                for n, byte in enumerate(part):
                    element, of = divmod(chunk.start + n, item)
                    (box, _), *_ = slabs(chunk.shard_box.sizes, element, element + 1)
                    where = tuple(a + b for a, b in zip(box.offsets, chunk.shard_box.offsets, strict=True))
                    one = Box(where, (1,) * len(where))
                    if one.intersect(wanted[w].box) is None:
                        continue
                    useful = True
                    got[w][(*one.relative_to(wanted[w].box).offsets, of)] = byte
            assert useful, "a chunk was read for nothing"
    return got


@st.composite
def cases(draw):
    """A tensor cut into shards that ranks own, boxes wanted of it, and the size of chunks and gaps."""
    shape = tuple(draw(st.lists(st.integers(1, 6), max_size=3)))
    item = draw(st.sampled_from([1, 2, 4]))
    cuts = [sorted({0, n, *draw(st.lists(st.integers(1, max(1, n - 1)), max_size=2))}) for n in shape]
    boxes = [
        Box(tuple(a for a, _ in edges), tuple(b - a for a, b in edges))
        for edges in itertools.product(*(list(itertools.pairwise(c)) for c in cuts))
    ]
    owners = [draw(st.integers(0, 2)) for _ in boxes]
    wants = []
    for _ in range(draw(st.integers(1, 3))):
        offsets = tuple(draw(st.integers(0, n - 1)) for n in shape)
        sizes = tuple(draw(st.integers(0, n - o)) for n, o in zip(shape, offsets, strict=True))
        wants.append(Box(offsets, sizes))
    return shape, item, boxes, owners, wants, draw(st.integers(1, 40)), draw(st.integers(0, 9))


@settings(max_examples=300, deadline=None)
@given(cases(), st.integers(1, 100), st.integers(0, 20))
def test_every_byte(case, max_read, max_gap):
    """Any grid of shards, any wanted boxes, any chunk size: every wanted byte is right, no chunk is read for nothing."""
    shape, item, boxes, owners, wants, chunk_bytes, gap = case
    rng = np.random.default_rng(0)
    whole = rng.integers(0, 255, (*shape, item), np.uint8)
    packs = {}
    indexes = [
        make_index(
            rank,
            [
                ("w", box, whole[region(box)].tobytes())
                for box, owner in zip(boxes, owners, strict=True)
                if owner == rank
            ],
            packs,
            chunk_bytes,
            gap,
        )
        for rank in range(3)
    ]
    wanted = [Want("w", box, box.elements * item) for box in wants]
    reads = plan_load(wanted, indexes, max_read=max_read, max_gap=max_gap)
    assert reads == plan_load(wanted, indexes, max_read=max_read, max_gap=max_gap)
    got = fetch(reads, wanted, packs, item)
    for want, filled in zip(wanted, got, strict=True):
        assert np.array_equal(filled, whole[region(want.box)])
    for read in reads:
        assert read.length <= max_read or len({c.chunk.offset for c in read.chunks}) == 1
        assert [c.chunk.offset for c in read.chunks] == sorted(c.chunk.offset for c in read.chunks)


def test_neighbours_are_joined_up_to_the_bound():
    """Chunks that follow each other in a pack are one request, up to the largest read."""
    packs = {}
    body = bytes(range(100))
    index = make_index(0, [("a", Box((0,), (100,)), body)], packs, 10)
    want = [Want("a", Box((0,), (100,)), 100)]
    assert [r.length for r in plan_load(want, [index], max_read=1000)] == [100]
    assert [r.length for r in plan_load(want, [index], max_read=30)] == [30, 30, 30, 10]


def test_only_chunks_with_wanted_bytes():
    """A few rows out of many read the chunks of those rows alone."""
    packs = {}
    index = make_index(0, [("a", Box((0, 0), (100, 10)), bytes(1000))], packs, 100)
    reads = plan_load([Want("a", Box((35, 2), (10, 3)), 30)], [index], max_gap=0)
    assert [(r.offset, r.length) for r in reads] == [(64 + 300, 200)]


def test_a_gap_in_the_cover_is_refused_by_name():
    """A box that the shards do not fill is an error that names the tensor."""
    packs = {}
    index = make_index(0, [("a/b", Box((0,), (5,)), bytes(5))], packs, 10)
    with pytest.raises(RestoreError, match=r"a/b.*5 of the 10"):
        plan_load([Want("a/b", Box((0,), (10,)), 10)], [index])
    with pytest.raises(RestoreError, match="other"):
        plan_load([Want("other", Box((0,), (10,)), 10)], [index])


def test_shards_that_overlap_are_refused():
    """Two shards with a common element contradict each other, even when the sizes would add up."""
    packs = {}
    index = make_index(0, [("a", Box((0,), (6,)), bytes(6)), ("a", Box((4,), (4,)), bytes(4))], packs, 10)
    with pytest.raises(InvalidManifest, match="overlap"):
        plan_load([Want("a", Box((0,), (10,)), 10)], [index])


def test_chunks_that_do_not_add_up_are_refused():
    """A shard whose chunks have other bytes than its elements is refused, by name."""
    packs = {}
    index = make_index(0, [("a", Box((0,), (10,)), bytes(30))], packs, 10)
    with pytest.raises(InvalidManifest, match="a: 30 bytes"):
        plan_load([Want("a", Box((0,), (10,)), 20)], [index])


def test_equal_boxes_of_two_ranks_are_read_once():
    """Where two ranks stored the same box, the first index's is taken."""
    packs = {}
    indexes = [make_index(r, [("a", Box((0,), (4,)), bytes(4))], packs, 10) for r in (0, 1)]
    (read,) = plan_load([Want("a", Box((0,), (4,)), 4)], indexes)
    assert [c.rank for c in read.chunks] == [0]


def test_planning_many_shards_is_linear():
    """A tensor in 20,000 shards is planned for one rank with work in proportion to what is read."""
    chunk = Chunk("0" * 64, 0, 64, 40)
    shards = tuple(Shard(path="w", offsets=(n, 0), sizes=(1, 10), chunks=(chunk,)) for n in range(20_000))
    index = Index(
        format=1, run="r", save="s", rank=0, world=1, plan="", packs=("packs/k",), entries=(),
        shards=shards, meta=Meta(), bytes=0, stored_bytes=0,
    )  # fmt: skip
    (read,) = plan_load([Want("w", Box((0, 0), (20_000, 10)), 800_000)], [index])
    assert len(read.chunks) == 20_000
