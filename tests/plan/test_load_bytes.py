"""What a restore's plan costs: bytes beyond those needed, and requests."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.format.box import Box
from everstep.format.index import Chunk, Index, Meta, Shard
from everstep.plan import plan_load
from tests.plan.test_load import Want

MIB = 2**20


def stored(shapes, *, chunk_bytes=8 * MIB, pack_bytes=512 * MIB, item=4):
    """An index of tensors of these shapes, chunk behind chunk in packs of about this size."""
    shards, pack, at = [], 0, 1000
    for n, shape in enumerate(shapes):
        nbytes = item * math.prod(shape)
        chunks = []
        for start in range(0, nbytes, chunk_bytes):
            length = min(chunk_bytes, nbytes - start)
            if at + length > pack_bytes:
                pack, at = pack + 1, 1000
            chunks.append(Chunk("0" * 64, pack, at, length))
            at += length
        shards.append(Shard(path=f"w{n}", offsets=(0,) * len(shape), sizes=shape, chunks=tuple(chunks)))
    return Index(
        format=1, run="r", save="s", rank=0, world=1, plan="",
        packs=tuple(f"packs/{n}" for n in range(pack + 1)), entries=(),
        shards=tuple(shards), meta=Meta(), bytes=0, stored_bytes=0,
    )  # fmt: skip


def want(path, box, item=4):
    """A wanted box of elements of 4 bytes."""
    return Want(path, box, item * box.elements)


def spent(reads):
    """Bytes asked for, and bytes of the chunks that hold wanted ones, each once."""
    chunks = {(read.key, c.chunk.offset, c.chunk.length) for read in reads for c in read.chunks}
    return sum(read.length for read in reads), sum(length for _, _, length in chunks)


shapes = st.lists(
    st.tuples(st.integers(1, 60), st.sampled_from([1, 7, 64, 1000, 20_000])), min_size=1, max_size=60
)


@settings(max_examples=200, deadline=None)
@given(shapes, st.sampled_from([64 * 2**10, 8 * MIB]), st.sampled_from([20 * MIB, 512 * MIB]))
def test_a_full_restore_reads_each_byte_once(cut, chunk_bytes, pack_bytes):
    """All of a checkpoint: just its bytes, in requests of at least half the largest on average."""
    index = stored(cut, chunk_bytes=chunk_bytes, pack_bytes=pack_bytes)
    reads = plan_load([want(f"w{n}", Box.whole(shape)) for n, shape in enumerate(cut)], [index])
    asked, needed = spent(reads)
    assert asked == needed == sum(4 * math.prod(shape) for shape in cut)
    assert len(reads) <= len(index.packs) + math.ceil(needed / (8 * MIB))


@settings(max_examples=200, deadline=None)
@given(shapes, st.data())
def test_some_of_the_tensors(cut, data):
    """Any choice of tensors: at most 1/32 is read for nothing, and never more requests than runs of chunks."""
    index = stored(cut)
    chosen = sorted(data.draw(st.sets(st.integers(0, len(cut) - 1), min_size=1)))
    wanted = [want(f"w{n}", Box.whole(cut[n])) for n in chosen]
    asked, needed = spent(plan_load(wanted, [index]))
    assert needed == sum(box.nbytes for box in wanted)
    assert needed <= asked <= needed * (1 + 1 / 32)
    assert len(plan_load(wanted, [index])) <= len(plan_load(wanted, [index], max_gap=0))


@settings(max_examples=200, deadline=None)
@given(st.integers(8, 4000), st.sampled_from([100, 5000, 50_000]), st.integers(0, 7))
def test_an_eighth_of_a_tensor(rows, columns, eighth):
    """An eighth of the rows of one tensor: its bytes, and beyond them less than a chunk at each edge."""
    index = stored([(3, 3), (rows, columns), (3, 3)])
    start, stop = rows * eighth // 8, rows * (eighth + 1) // 8
    box = want("w1", Box((start, 0), (stop - start, columns)))
    asked, _ = spent(plan_load([box], [index]))
    assert asked < box.nbytes + 2 * 8 * MIB
    assert asked <= math.ceil(box.nbytes / (8 * MIB)) * 8 * MIB + 8 * MIB


def test_small_gaps_are_joined_first():
    """Many leaves with small ones left out between them come in few requests; a large gap is not read."""
    cut = [(25_000,) if n % 2 else (250,) for n in range(1000)]
    index = stored(cut)
    wanted = [want(f"w{n}", Box.whole(cut[n])) for n in range(1, 1000, 2)]
    reads = plan_load(wanted, [index])
    asked, needed = spent(reads)
    assert len(reads) == math.ceil(asked / (16 * MIB)) == 4
    assert asked - needed <= 500 * 1000
    cut = [(25_000,) if n % 2 else (2_500,) for n in range(1000)]
    index = stored(cut)
    asked, needed = spent(plan_load([want(f"w{n}", Box.whole(cut[n])) for n in range(1, 1000, 2)], [index]))
    assert needed * 1.02 < asked <= needed * (1 + 1 / 32)


def test_a_few_of_many_small_chunks_do_not_bring_the_rest():
    """One small leaf of twenty: its own bytes, not those of its neighbours."""
    cut = [(1000,)] * 2000
    index = stored(cut)
    wanted = [want(f"w{n}", Box.whole(cut[n])) for n in range(0, 2000, 20)]
    asked, needed = spent(plan_load(wanted, [index]))
    assert needed == 100 * 4000
    assert asked <= needed * 1.05
