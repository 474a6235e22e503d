"""Downloading: every byte right and verified, in bounded memory, with errors that say where."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.errors import CorruptChunk, EverstepError, MissingObject, ShortRead, StoreUnavailable
from everstep.format.box import Box
from everstep.plan import plan_load
from everstep.store.count import Count
from everstep.store.fault import Fault, Injection, Kind, Scripted
from everstep.store.local import LocalStore
from everstep.store.memory import MemoryStore
from everstep.transfer.download import download
from tests.transfer.made import flat_of, keys, restore, save, wanted_of


def noise(size, seed=0):
    """Bytes that no two chunks share."""
    return np.random.default_rng(seed).integers(0, 255, size, np.uint8)


@st.composite
def cases(draw):
    """A tensor, how it was cut when it was saved, and the boxes that are wanted."""
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    cut = draw(st.integers(0, shape[0]))
    saved = [
        Box((low, *(0,) * (len(shape) - 1)), (high - low, *shape[1:]))
        for low, high in ((0, cut), (cut, shape[0]))
        if high > low
    ]
    wanted = []
    for _ in range(draw(st.integers(1, 3))):
        offsets = tuple(draw(st.integers(0, n - 1)) for n in shape)
        wanted.append(
            Box(offsets, tuple(draw(st.integers(1, n - o)) for n, o in zip(shape, offsets, strict=True)))
        )
    return shape, saved, wanted


@settings(max_examples=100)
@given(cases(), st.integers(1, 60), st.booleans(), st.booleans(), st.integers(1, 200))
def test_resharding(case, chunk_bytes, hidden, fused, budget):
    """Cut in any way when saved and in any other when wanted, through views or without: the same elements."""
    shape, saved, wanted = case
    array = np.random.default_rng(0).integers(0, 2**30, shape, np.int32)
    flat = flat_of({"w": array}, boxes={"w": saved})
    store = MemoryStore()
    index = save(store, flat, stage_options={"chunk_bytes": chunk_bytes, "pack_bytes": 200}).index
    got = restore(
        store,
        flat,
        [index],
        boxes=[("w", box) for box in wanted],
        hidden={"w"} if hidden else (),
        fused=fused,
        budget_bytes=budget,
    )
    for box, body in zip(wanted, got, strict=True):
        part = array[tuple(slice(o, o + n) for o, n in zip(box.offsets, box.sizes, strict=True))]
        assert body == part.tobytes()


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("hidden", [(), ("big", "small/3")])
def test_large_and_small(tmp_path, fused, hidden):
    """Large chunks straight to their place, small ones through scratch, from a disk."""
    arrays = {"big": noise(20_000_000)} | {f"small/{n}": noise(1000 + n, n) for n in range(50)}
    flat = flat_of(arrays)
    store = LocalStore(tmp_path)
    index = save(store, flat).index
    assert restore(store, flat, [index], hidden=hidden, fused=fused) == [a.tobytes() for a in arrays.values()]


def test_the_bytes_of_a_restore_are_the_bytes_of_the_state():
    """A whole restore reads each byte once; a tensor alone reads its chunks alone."""
    store = Count(MemoryStore())
    arrays = {f"w{n}": noise(300_000, n) for n in range(10)}
    flat = flat_of(arrays)
    index = save(store, flat).index
    store.clear()
    restore(store, flat, [index])
    assert store.bytes_out == 3_000_000
    store.clear()
    assert restore(store, flat, [index], boxes=[("w4", Box((0,), (300_000,)))]) == [arrays["w4"].tobytes()]
    assert store.bytes_out == 300_000


def test_small_neighbours_are_one_request():
    """A thousand small tensors are read in one request."""
    store = Count(MemoryStore())
    flat = flat_of({f"w{n}": noise(1000, n) for n in range(1000)})
    index = save(store, flat).index
    store.clear()
    restore(store, flat, [index])
    assert store.calls["get_range"] == 1


def test_a_chunk_of_many_tensors_is_read_once():
    """Where equal chunks were stored once, they are read once, and put wherever they belong."""
    store = Count(MemoryStore())
    flat = flat_of({f"m{n}": np.full(400_000, 7, np.uint8) for n in range(8)})
    index = save(store, flat).index
    store.clear()
    assert restore(store, flat, [index], fused=False) == [bytes([7]) * 400_000] * 8
    assert store.bytes_out == 400_000


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("size", [3000, 700_000])
def test_any_flipped_bit_is_found(fused, size):
    """A flipped bit anywhere in a chunk is a CorruptChunk that names run, step, rank, key, offset and leaf."""
    inner = MemoryStore()
    flat = flat_of({"a/w": noise(size), "b": noise(size, 1)})
    index = save(inner, flat, stage_options={"chunk_bytes": 300_000}).index
    key = index.packs[0]
    body = inner.get(key, 2**30)
    chunks = [(shard.path, chunk) for shard in index.shards for chunk in shard.chunks]
    for place in np.random.default_rng(2).integers(chunks[0][1].offset, len(body), 40):
        store = MemoryStore()
        store.create(key, body[:place] + bytes([body[place] ^ 1 << (place % 8)]) + body[place + 1 :])
        path, chunk = next((p, c) for p, c in chunks if c.offset <= place < c.offset + c.length)
        with pytest.raises(CorruptChunk) as caught:
            restore(store, flat, [index], fused=fused, workers=1)
        fields = caught.value.fields
        assert (fields["run"], fields["step"], fields["rank"]) == ("run", 7, 0)
        assert (fields["key"], fields["offset"], fields["path"]) == (key, chunk.offset, path)


@pytest.mark.parametrize("fused", [True, False])
def test_a_bit_flipped_on_the_way(fused):
    """Bytes that were damaged on the way only are read again and come out right."""
    inner = MemoryStore()
    flat = flat_of({"w": noise(2_500_000), "s": noise(100, 1)})
    index = save(inner, flat).index
    for at in range(1, 5):
        store = Fault(inner, Scripted(Injection(kind=Kind.FLIPPED, at=at, verb="get_range")))
        got = restore(store, flat, [index], fused=fused, workers=1)
        assert got == [noise(2_500_000).tobytes(), noise(100, 1).tobytes()]


def test_a_short_answer_is_asked_again():
    """One short answer costs one more request; three in a row are a ShortRead."""
    inner = MemoryStore()
    flat = flat_of({"w": noise(5000)})
    index = save(inner, flat).index
    store = Fault(inner, Scripted(Injection(kind=Kind.SHORT, at=1, verb="get_range")))
    assert restore(store, flat, [index]) == [noise(5000).tobytes()]
    assert store.calls == 2
    always = [Injection(kind=Kind.SHORT, at=n, verb="get_range") for n in range(1, 10)]
    with pytest.raises(ShortRead):
        restore(Fault(inner, Scripted(*always)), flat, [index])


def test_a_pack_cut_in_half():
    """An object that ends too early is a damaged chunk: the first that is not whole."""
    inner = MemoryStore()
    flat = flat_of({f"w{n}": noise(1000, n) for n in range(4)})
    index = save(inner, flat).index
    body = inner.get(index.packs[0], 2**20)
    store = MemoryStore()
    store.create(index.packs[0], body[: index.shards[2].chunks[0].offset + 10])
    with pytest.raises(CorruptChunk, match=r"w2: .*ends at byte"):
        restore(store, flat, [index])


def test_a_missing_pack_lists_its_leaves():
    """When a pack is gone, the error names its key and each leaf in it, and no other."""
    store = MemoryStore()
    flat = flat_of({f"w{n}": noise(1000, n) for n in range(4)})
    index = save(store, flat, stage_options={"pack_bytes": 2000}).index
    store.delete(index.packs[1])
    with pytest.raises(MissingObject) as caught:
        restore(store, flat, [index])
    assert caught.value.fields["key"] == index.packs[1] == keys()(1)
    assert caught.value.fields["paths"] == ["w2", "w3"]


@pytest.mark.parametrize("kind", [Kind.BEFORE, Kind.AFTER, Kind.FLIPPED, Kind.SHORT, Kind.THROTTLED])
def test_a_fault_at_every_call(kind):
    """Whatever goes wrong with whichever call: the right bytes, or an error; never wrong bytes."""
    inner = MemoryStore()
    arrays = {f"w{n}": noise(300_000, n) for n in range(4)} | {"s": noise(99, 9)}
    flat = flat_of(arrays)
    index = save(inner, flat, stage_options={"pack_bytes": 400_000}).index
    for at in range(1, 9):
        store = Fault(inner, Scripted(Injection(kind=kind, at=at)))
        try:
            got = restore(store, flat, [index])
        except EverstepError as error:
            assert isinstance(error, StoreUnavailable)  # noqa: PT017 - either outcome is right
        else:
            assert got == [array.tobytes() for array in arrays.values()]


def test_memory_is_bounded():
    """Beside the targets a restore takes no more memory than its budget, also for targets without a view."""
    store = MemoryStore()
    arrays = {f"w{n}": noise(1_000_000, n) for n in range(30)}
    flat = flat_of(arrays)
    index = save(store, flat).index
    for hidden in ((), arrays):
        wanted = wanted_of(flat, hidden=hidden)
        reads = plan_load(wanted, [index])
        tracemalloc.start()
        download(store, reads, wanted, run="r", step=1, budget_bytes=4_000_000, workers=8, fused=False)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 5_000_000
        assert [w.target.bytes.tobytes() for w in wanted] == [array.tobytes() for array in arrays.values()]
        assert all(w.target.taken == bool(hidden) for w in wanted)


def test_one_box_larger_than_the_budget():
    """A box without a view that is larger than the budget is taken alone, and comes out right."""
    store = MemoryStore()
    flat = flat_of({"a": noise(900_000), "b": noise(2_000_000, 1)})
    index = save(store, flat, stage_options={"chunk_bytes": 300_000}).index
    got = restore(store, flat, [index], hidden={"a", "b"}, budget_bytes=1000, workers=4)
    assert got == [noise(900_000).tobytes(), noise(2_000_000, 1).tobytes()]


def test_progress_ends_at_the_total():
    """Progress grows to the bytes of all chunks."""
    told = []
    store = MemoryStore()
    flat = flat_of({"a": noise(900_000), "b": noise(2000, 1)})
    index = save(store, flat).index
    restore(store, flat, [index], listener=told.append)
    assert [event.done for event in told] == sorted(event.done for event in told)
    assert told[-1].done == told[-1].total == 902_000
