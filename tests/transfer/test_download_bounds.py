"""What a restore costs, counted: bytes fetched, requests, bytes in memory at once; and each single bit."""

import itertools
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.errors import AccessDenied, CorruptChunk, MissingObject, ShortRead, StoreUnavailable
from everstep.format.box import Box
from everstep.plan import plan_load
from everstep.store.count import Count
from everstep.store.fault import Fault, Injection, Kind, Scripted
from everstep.store.memory import MemoryStore
from everstep.transfer.download import download
from tests.transfer.made import flat_of, known_of, restore, save, wanted_of

CUT = {"chunk_bytes": 100_000, "pack_bytes": 1_000_000}


def noise(size, seed=0):
    """Bytes that no two chunks share."""
    return np.random.default_rng(seed).integers(0, 255, size, np.uint8)


class InFlight:
    """The inner store; how many bytes were asked for at once, and by how many calls, at most.

    A call is not answered before ``expected`` were under way at once, so that they meet on a slow machine too.
    """

    def __init__(self, inner, expected=0):
        self._inner, self._expected, self._changed = inner, expected, threading.Condition()
        self.url, self.now, self.calls, self.peak, self.most = "https://far/", 0, 0, 0, 0

    def get_range(self, key, start, into):
        with self._changed:
            self.now += into.nbytes
            self.calls += 1
            self.peak, self.most = max(self.peak, self.now), max(self.most, self.calls)
            self._changed.notify_all()
            if self._expected:
                self._changed.wait_for(lambda: self.most >= self._expected, 20)
            self._changed.wait_for(lambda: self.most > (self._expected or self.most), 0.01)  # one too many
        try:
            self._inner.get_range(key, start, into)
        finally:
            with self._changed:
                self.now -= into.nbytes
                self.calls -= 1


def grid(draw, shape):
    """A tensor cut by planes, as shards of ranks are."""
    boxes = [Box((), ())]
    for n in shape:
        cuts = sorted({0, n, *draw(st.lists(st.integers(0, n), max_size=2))})
        edges = list(itertools.pairwise(cuts)) or [(0, 0)]
        boxes = [Box((*b.offsets, low), (*b.sizes, high - low)) for b in boxes for low, high in edges]
    return boxes


@st.composite
def cases(draw):
    """Some tensors of any rank and type, how each was cut, and boxes wanted of them."""
    arrays, cuts, wanted = {}, {}, []
    for number in range(draw(st.integers(1, 4))):
        path = f"t{number}"
        shape = tuple(draw(st.lists(st.integers(0, 6), max_size=4)))
        dtype = draw(st.sampled_from(["u1", "f2", "i4", "c16"]))
        item = np.dtype(dtype).itemsize
        arrays[path] = noise(int(np.prod(shape)) * item, number).view(dtype).reshape(shape)
        cuts[path] = grid(draw, shape)
        for _ in range(draw(st.integers(0, 3))):
            offsets = tuple(draw(st.integers(0, n)) for n in shape)
            sizes = tuple(draw(st.integers(0, n - o)) for n, o in zip(shape, offsets, strict=True))
            wanted.append((path, Box(offsets, sizes)))
        wanted.append((path, Box.whole(shape)))
    hidden = draw(st.sets(st.sampled_from(sorted(arrays))))
    return arrays, cuts, draw(st.permutations(wanted)), hidden


@settings(max_examples=150, deadline=None)
@given(
    cases(),
    st.integers(1, 90),
    st.integers(1, 400),
    st.integers(1, 300),
    st.integers(0, 9000),
    st.integers(1, 500),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from([0, 1, 16, 2**18]),
)
def test_whatever_was_saved_comes_back(
    case, chunk_bytes, pack_bytes, max_read, max_gap, budget, workers, fused, straight
):
    """Any tensors, cuts, chunks, packs, boxes, targets, reads and budgets, directly or through scratch memory."""
    arrays, cuts, boxes, hidden = case
    flat, store = flat_of(arrays, boxes=cuts), MemoryStore()
    options = {"chunk_bytes": chunk_bytes, "pack_bytes": pack_bytes}
    index = save(store, flat, stage_options=options).index
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("everstep.transfer.download._STRAIGHT", straight)
        patch.setattr("everstep.transfer.fetch._FUSED", 7)
        got = restore(
            store, flat, [index], boxes=boxes, hidden=hidden, fused=fused, budget_bytes=budget,
            workers=workers, plan_options={"max_read": max_read, "max_gap": max_gap},
        )  # fmt: skip
    for (path, box), body in zip(boxes, got, strict=True):
        part = arrays[path][tuple(slice(o, o + n) for o, n in zip(box.offsets, box.sizes, strict=True))]
        assert body == part.tobytes(), (path, box)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("straight", [1, 2**18])
def test_each_single_bit_of_the_data_is_covered(monkeypatch, fused, straight):
    """Every bit of every chunk, flipped alone: a CorruptChunk that names all that is needed to find it."""
    monkeypatch.setattr("everstep.transfer.download._STRAIGHT", straight)
    inner, flat = MemoryStore(), flat_of({"a/w": noise(37), "b": np.float32(1.5)})
    index = save(inner, flat, stage_options={"chunk_bytes": 16}).index
    (key,) = index.packs
    body = inner.get(key, 2**20)
    chunks = [(shard.path, chunk) for shard in index.shards for chunk in shard.chunks]
    first = min(chunk.offset for _, chunk in chunks)
    for bit in range(8 * first, 8 * len(body)):
        at = bit // 8
        path, chunk = next((p, c) for p, c in chunks if c.offset <= at < c.offset + c.length)
        store = MemoryStore()
        store.create(key, body[:at] + bytes([body[at] ^ 1 << bit % 8]) + body[at + 1 :])
        with pytest.raises(CorruptChunk) as caught:
            restore(store, flat, [index], fused=fused, workers=1)
        fields = caught.value.fields
        named = [fields[name] for name in ("run", "step", "rank", "key", "offset", "length", "path")]
        assert named == ["run", 7, 0, key, chunk.offset, chunk.length, path]
        text = str(caught.value)
        assert all(str(name) in text for name in ("run run", "step 7", "rank 0", key, chunk.offset, path))


@pytest.mark.parametrize("fused", [True, False])
def test_short_answers_are_tried_three_times(fused):
    """Two are survived, the third is the error; no request is made after it."""
    inner, flat = MemoryStore(), flat_of({"w": noise(50_000)})
    index = save(inner, flat).index
    for bad in (1, 2, 3, 9):
        shorts = [Injection(kind=Kind.SHORT, at=n, verb="get_range") for n in range(1, bad + 1)]
        store = Count(Fault(inner, Scripted(*shorts)))
        if bad < 3:
            assert restore(store, flat, [index], fused=fused) == [noise(50_000).tobytes()]
        else:
            with pytest.raises(ShortRead):
                restore(store, flat, [index], fused=fused)
        assert store.calls["get_range"] == min(bad + 1, 3)


def test_a_missing_pack_names_the_leaves_whose_bytes_it_holds():
    """Also when it belongs to an older save; leaves that are not asked for are not named."""
    store = MemoryStore()
    arrays = {f"layer/{n}": noise(3000, n) for n in range(9)}
    flat = flat_of(arrays)
    index = save(store, flat, stage_options={"chunk_bytes": 1000, "pack_bytes": 9000}).index
    for number, key in enumerate(index.packs):
        held = [s.path for s in index.shards if any(c.pack == number for c in s.chunks)]
        broken = MemoryStore()
        for listed in store.list(""):
            if listed.key != key:
                broken.create(listed.key, store.get(listed.key, 2**20))
        with pytest.raises(MissingObject) as caught:
            restore(broken, flat, [index])
        assert caught.value.fields["paths"] == held
        assert caught.value.fields["key"] == key
        assert all(path in str(caught.value) for path in held)
        others = [(path, Box.whole(arrays[path].shape)) for path in arrays if path not in held]
        assert restore(broken, flat, [index], boxes=others) == [arrays[path].tobytes() for path, _ in others]


@pytest.mark.parametrize(
    ("kind", "error"), [(Kind.DENIED, AccessDenied), (Kind.UNAVAILABLE, StoreUnavailable)]
)
def test_other_errors_of_the_store_come_as_they_are_and_stop_the_rest(kind, error):
    """Tried again elsewhere, if at all: one request that fails ends the restore."""
    inner = MemoryStore()
    flat = flat_of({f"w{n}": noise(300_000, n) for n in range(40)})
    index = save(inner, flat).index
    store = Count(Fault(inner, Scripted(Injection(kind=kind, at=3))))
    with pytest.raises(error):
        restore(store, flat, [index], workers=2, fused=False)
    assert store.calls["get_range"] <= 6


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("budget", [1, 250_000, 1_000_000])
@pytest.mark.parametrize("large", [True, False])
def test_the_bytes_asked_for_at_once_stay_within_the_budget(large, budget, hidden):
    """With eight workers and slow answers; a chunk or box larger than the budget goes alone."""
    size = 300_000 if large else 20_000
    arrays = {f"w{n}": noise(size, n) for n in range(24)}
    flat, inner = flat_of(arrays), MemoryStore()
    index = save(inner, flat, stage_options={"chunk_bytes": 300_000, "pack_bytes": 2_000_000}).index
    used = 3 if budget == 1_000_000 and large and not hidden else 0
    store = InFlight(inner, used)
    got = restore(
        store, flat, [index], hidden=arrays if hidden else (), budget_bytes=budget, workers=8,
        plan_options={"max_read": 100_000},
    )  # fmt: skip
    assert got == [array.tobytes() for array in arrays.values()]
    one = 300_000 if large else 100_000
    assert store.peak <= max(budget, one)
    assert store.most == 1 if budget == 1 else store.most <= 8
    assert store.most == used or not used  # the budget is not left lying


def test_workers_bound_the_requests_under_way():
    """As many at once as there are workers, no more."""
    flat, inner = flat_of({f"w{n}": noise(300_000, n) for n in range(12)}), MemoryStore()
    index = save(inner, flat).index
    for workers in (1, 2, 5):
        store = InFlight(inner, workers)
        restore(store, flat, [index], workers=workers)
        assert store.most == workers


@pytest.mark.parametrize("fused", [True, False])
def test_a_full_restore_fetches_at_most_a_twentieth_more_than_it_needs(fused):
    """Large and small leaves mixed, several packs; no byte of a chunk twice."""
    arrays = {f"w{n}": noise(250_001, n) for n in range(8)} | {f"s{n}": noise(n + 1, n) for n in range(300)}
    flat, store = flat_of(arrays), Count(MemoryStore())
    index = save(store, flat, stage_options=CUT).index
    store.clear()
    assert restore(store, flat, [index], fused=fused) == [array.tobytes() for array in arrays.values()]
    needed = sum(array.nbytes for array in arrays.values())
    assert needed <= store.bytes_out <= 1.05 * needed
    assert store.calls["get_range"] == len(store.log) <= 2 * len(index.packs)


def test_a_restore_after_many_partial_saves_still_reads_little_beyond_its_need():
    """Chunks are spread over the packs of ten saves; what lies between them is read only where it is short."""
    store, arrays, known, index = (
        Count(MemoryStore()),
        {f"w{n}": noise(400_000, n) for n in range(10)},
        {},
        None,
    )
    for n in range(10):
        arrays[f"w{n}"] = noise(400_000, 100 + n)
        index = save(store, flat_of(arrays), name=f"s{n}", known=known, stage_options=CUT).index
        known |= known_of(index)
    store.clear()
    assert restore(store, flat_of(arrays), [index]) == [array.tobytes() for array in arrays.values()]
    assert store.bytes_out <= 1.05 * 4_000_000


@pytest.mark.parametrize(
    "box",
    [Box((0, 0), (1, 1000)), Box((499, 3), (2, 5)), Box((100, 0), (300, 1000)), Box((999, 999), (1, 1))],
)
def test_a_part_of_a_tensor_costs_its_rows_and_the_edges_of_chunks(box):
    """At most one chunk before and one behind the stretch that holds the box."""
    array = noise(1_000_000).reshape(1000, 1000)
    flat, store = (
        flat_of({"other": noise(500_000, 1), "w": array, "last": noise(500_000, 2)}),
        Count(MemoryStore()),
    )
    index = save(store, flat, stage_options={"chunk_bytes": 10_000}).index
    store.clear()
    (got,) = restore(store, flat, [index], boxes=[("w", box)], plan_options={"max_gap": 0})
    rows = slice(box.offsets[0], box.offsets[0] + box.sizes[0])
    assert got == array[rows, box.offsets[1] : box.offsets[1] + box.sizes[1]].tobytes()
    assert store.bytes_out <= box.sizes[0] * 1000 + 2 * 10_000


def test_requests_are_as_few_as_reads_allow(monkeypatch):
    """Small neighbours are joined up to the bound of a read; large chunks are one request each where they cost."""
    arrays = {f"w{n}": noise(10_000, n) for n in range(100)}
    flat, store = flat_of(arrays), Count(MemoryStore())
    index = save(store, flat).index
    for max_read, requests in ((2**24, 1), (250_000, 4), (10_000, 100)):
        store.clear()
        restore(store, flat, [index], plan_options={"max_read": max_read})
        assert store.calls["get_range"] == requests
    monkeypatch.setattr("everstep.transfer.fetch._FUSED", 2**20)
    flat, store = flat_of({"w": noise(5 * 2**20)}), Count(MemoryStore())
    index = save(store, flat).index
    for fused, requests in ((False, 1), (True, 5)):
        store.clear()
        restore(store, flat, [index], fused=fused)
        assert store.calls["get_range"] == requests


def test_a_box_without_a_view_takes_its_memory_from_the_budget_once():
    """Not again for each of its chunks: three more requests go beside the first."""
    flat, inner = flat_of({"w": noise(600_000)}), MemoryStore()
    index = save(inner, flat, stage_options={"chunk_bytes": 100_000}).index
    store = InFlight(inner, 4)
    restore(
        store,
        flat,
        [index],
        hidden={"w"},
        budget_bytes=1_000_000,
        workers=6,
        plan_options={"max_read": 100_000},
    )
    assert store.most == 4


def test_what_lies_between_wanted_leaves_is_not_fetched():
    """Every second leaf costs its own bytes, unless the gap is small."""
    arrays = {f"w{n}": noise(100_000 if n % 2 else 70_000, n) for n in range(20)}
    flat, store = flat_of(arrays), Count(MemoryStore())
    index = save(store, flat).index
    store.clear()
    odd = [(path, Box.whole(array.shape)) for path, array in arrays.items() if array.size == 100_000]
    assert restore(store, flat, [index], boxes=odd) == [arrays[path].tobytes() for path, _ in odd]
    assert store.bytes_out == 1_000_000
    assert store.calls["get_range"] == 10


def test_nothing_wanted_is_nothing_asked():
    """No leaf, and leaves without elements."""
    flat, store = flat_of({"e": np.zeros((0, 3)), "w": noise(10)}), Count(MemoryStore())
    index = save(store, flat).index
    store.clear()
    assert restore(store, flat, [index], boxes=[]) == []
    assert restore(store, flat, [index], boxes=[("e", Box.whole((0, 3)))]) == [b""]
    assert store.calls == {}


def test_after_damage_a_box_without_a_view_was_not_handed_over():
    """The state takes only what was verified."""
    inner, flat = MemoryStore(), flat_of({"w": noise(900_000)})
    index = save(inner, flat, stage_options={"chunk_bytes": 300_000}).index
    body = bytearray(inner.get(index.packs[0], 2**24))
    body[-1] ^= 1
    store = MemoryStore()
    store.create(index.packs[0], body)
    wanted = wanted_of(flat, hidden={"w"})
    with pytest.raises(CorruptChunk):
        download(store, plan_load(wanted, [index]), wanted, run="r", step=1)
    assert wanted[0].target.taken == 0


def test_the_budget_is_given_back_with_each_answer():
    """Three requests fit at once, the last three as well as the first."""
    flat, inner = flat_of({f"w{n}": noise(300_000, n) for n in range(24)}), MemoryStore()
    index = save(inner, flat).index
    meet = threading.Barrier(3)

    class Meeting(MemoryStore):
        def get_range(self, key, start, into):
            meet.wait(20)
            inner.get_range(key, start, into)

    restore(Meeting(), flat, [index], budget_bytes=1_000_000, workers=8, fused=False)
    assert not meet.broken
