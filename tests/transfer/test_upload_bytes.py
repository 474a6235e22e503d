"""Staged packs into the store: each byte once, in objects that other tools read."""

import contextlib
import threading
from collections import Counter

import numpy as np
import pytest
import safetensors.numpy
import torch
from safetensors.torch import load as load_torch

from everstep.errors import AlreadyExists, SaveFailed, StoreFull, StoreUnavailable
from everstep.events import Transferred
from everstep.format.digests import digest_of
from everstep.plan import plan_save
from everstep.state import flatten
from everstep.store.count import Count
from everstep.store.fault import Fault, Injection, Kind, Scripted
from everstep.store.memory import MemoryStore
from everstep.transfer.layout import pack_bytes_for
from everstep.transfer.memory import Arena
from everstep.transfer.stage import stage
from everstep.transfer.upload import upload
from tests.transfer.made import flat_of, keys, known_of, restore, save, staged_of

CUT = {"chunk_bytes": 1000, "pack_bytes": 5000}


def random_arrays(seed=0, count=6, size=1700):
    """Arrays that share no chunk."""
    rng = np.random.default_rng(seed)
    return {f"w{n}": rng.integers(0, 255, size, np.uint8) for n in range(count)}


def contents(arrays):
    """Their bytes, in order."""
    return [np.asarray(array).tobytes() for array in arrays.values()]


def object_of(store, key):
    """A whole object."""
    return store.get(key, 2**30)


class Asking:
    """The inner store, with what is asked of it told first."""

    def __init__(self, inner, before):
        self._inner, self._before = inner, before

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def create(self, key, body):
        self._before(key, body)
        self._inner.create(key, body)


def free(arena):
    """Whether the staging memory can be had."""
    arena.take(1)
    arena.release()
    return True


def test_the_safetensors_library_reads_a_pack():
    """Whole tensors under their paths, with type and shape, 0-d ones too."""
    arrays = {
        "model/w": np.arange(12, dtype=np.float32).reshape(3, 4), "model/b": np.float64(2.5),
        "step": np.int64(7), "flags": np.array([True, False]),
    }  # fmt: skip
    store = MemoryStore()
    (key,) = save(store, flat_of(arrays)).uploaded.packs
    body = object_of(store, key)
    found = safetensors.numpy.load(body)
    assert found.keys() == arrays.keys()
    for path, array in arrays.items():
        np.testing.assert_array_equal(found[path], array)
        assert found[path].dtype == np.asarray(array).dtype
    assert (8 + int.from_bytes(body[:8], "little")) % 4096 == 0


def test_the_safetensors_library_reads_types_that_numpy_lacks():
    """Torch's bfloat16 and float8."""
    state = {"a": torch.randn(5).to(torch.bfloat16), "b": torch.randn(2, 3).to(torch.float8_e4m3fn)}
    flat, store = flatten(state), MemoryStore()
    plan = plan_save(flat.pieces, rank=0, world=1, entries=flat.entries)
    (key,) = upload(stage(flat, plan, Arena()), store=store, pack_key=keys(), known={}).packs
    found = load_torch(object_of(store, key))
    for path, tensor in state.items():
        assert found[path].dtype == tensor.dtype
        assert torch.equal(found[path].view(torch.uint8), tensor.view(torch.uint8))


def test_every_pack_of_many_is_a_safetensors_file_also_with_gaps_closed():
    """Parts of tensors stand there as bytes; all objects together hold each new byte once."""
    arrays, store = random_arrays(), MemoryStore()
    first = save(store, flat_of(arrays), stage_options=CUT)
    arrays["w1"][1200] ^= 1
    arrays["w4"][3] ^= 1
    second = save(store, flat_of(arrays), name="next", known=known_of(first.index), stage_options=CUT)
    sizes = []
    for saved in (first, second):
        own = [key for key in saved.uploaded.packs if f"/{saved.index.save}/" in key]
        parts = [part for key in own for part in safetensors.numpy.load(object_of(store, key)).values()]
        sizes.append(sum(part.nbytes for part in parts))
    assert sizes == [6 * 1700, 700 + 1000]


def test_gaps_closed_in_place_leave_the_right_bytes():
    """Any chunks known, any left: moved within the pack, which then holds just those; all bytes come back."""
    rng = np.random.default_rng(3)
    for _ in range(40):
        arrays, store = random_arrays(int(rng.integers(1000)), 5, 2100), MemoryStore()
        flat = flat_of(arrays)
        first = save(store, flat, stage_options=CUT)
        changed = [(int(rng.integers(5)), int(rng.integers(2100))) for _ in range(int(rng.integers(1, 9)))]
        for which, at in changed:
            arrays[f"w{which}"][at] ^= 0x55
        counted = Count(store)
        second = save(counted, flat_of(arrays), name="next", known=known_of(first.index), stage_options=CUT)
        assert restore(store, flat, [second.index]) == contents(arrays)
        assert counted.bytes_in == second.uploaded.stored_bytes
        for shard in second.index.shards:
            for chunk in shard.chunks:
                body = bytearray(chunk.length)
                store.get_range(second.index.packs[chunk.pack], chunk.offset, memoryview(body))
                assert digest_of(body) == chunk.digest


def test_the_same_bytes_twice_in_one_save_are_stored_once():
    """In one pack and across packs, on several threads."""
    rng = np.random.default_rng(0)
    one = rng.integers(0, 255, 5000, np.uint8)
    arrays = {f"tied{n}": one for n in range(8)}
    for _ in range(10):
        store = Count(MemoryStore())
        flat = flat_of(arrays)
        saved = save(store, flat, stage_options=CUT, workers=4)
        data = sum(
            part.nbytes
            for key in saved.uploaded.packs
            for part in safetensors.numpy.load(object_of(store, key)).values()
        )
        assert data == 5000
        assert restore(store, flat, [saved.index]) == contents(arrays)


def test_one_request_for_each_pack_and_few_packs():
    """A large save makes about twenty requests, whatever the number of its leaves."""
    arrays = {f"w{n}": np.full(999, n, np.uint16) for n in range(1000)}
    store, nbytes = Count(MemoryStore()), 1000 * 1998
    save(store, flat_of(arrays), stage_options={"chunk_bytes": 2**16, "pack_bytes": nbytes // 20})
    assert set(store.calls) == {"create"}
    assert store.calls["create"] <= 22
    assert all(count == 1 for count in Counter(key for _, key in store.log).values())
    assert all(-(-n // pack_bytes_for(n)) <= 20 for n in (10**6, 10**9, 80 * 10**9))


def test_a_lost_answer_is_read_back_and_found_to_be_our_own():
    """The object was made and the answer lost; the retry is told that it exists: no error."""
    arrays, store = random_arrays(), MemoryStore()
    flat = flat_of(arrays)

    class Again(Asking):
        def create(self, key, body):
            with contextlib.suppress(StoreUnavailable):
                Fault(self._inner, Scripted(Injection(kind=Kind.AFTER, at=1))).create(key, body)
            self._inner.create(key, body)

    saved = save(Again(store, None), flat, stage_options=CUT)
    assert restore(store, flat, [saved.index]) == contents(arrays)
    with pytest.raises(AlreadyExists):
        store.create(saved.uploaded.packs[0], b"")


@pytest.mark.parametrize("change", ["flipped", "longer", "shorter"])
def test_a_key_that_other_bytes_have_is_an_error_and_stays_theirs(change):
    """A name that was used twice must not pass for one's own save."""
    arrays = random_arrays(count=1)
    model = MemoryStore()
    (key,) = save(model, flat_of(arrays)).uploaded.packs
    body = object_of(model, key)
    other = {"flipped": body[:-1] + bytes([body[-1] ^ 1]), "longer": body + b"x", "shorter": body[:-1]}[
        change
    ]
    store, arena = MemoryStore(), Arena()
    store.create(key, other)
    with pytest.raises(SaveFailed, match="taken by other bytes") as caught:
        save(store, flat_of(arrays), arena=arena)
    assert caught.value.fields["key"] == key
    assert object_of(store, key) == other
    assert free(arena)


@pytest.mark.parametrize(
    ("kind", "cause"),
    [(Kind.FULL, StoreFull), (Kind.UNAVAILABLE, StoreUnavailable), (Kind.BEFORE, StoreUnavailable)],
)
def test_other_errors_are_failed_saves_that_name_key_and_cause(kind, cause):
    """A full store, and one that cannot be reached."""
    arena = Arena()
    store = Fault(MemoryStore(), Scripted(Injection(kind=kind, at=1)))
    with pytest.raises(SaveFailed) as caught:
        save(store, flat_of(random_arrays()), arena=arena)
    assert type(caught.value.__cause__) is cause
    assert caught.value.fields["key"].startswith("packs/")
    assert caught.value.fields["cause"] == cause.code
    assert free(arena)


def test_an_error_that_is_not_ours_is_a_failed_save_too():
    """A bug of a library is named, not swallowed."""

    def broken(key, body):
        raise ZeroDivisionError("by zero")

    arena = Arena()
    with pytest.raises(SaveFailed, match="ZeroDivisionError: by zero"):
        save(Asking(MemoryStore(), broken), flat_of(random_arrays()), arena=arena)
    assert free(arena)


def test_one_worker_that_fails_stops_the_others():
    """Packs under way end, no other is begun, the error surfaces."""
    arrays = random_arrays(count=30, size=5000)
    failed, lock, made = threading.Event(), threading.Lock(), []

    def before(key, body):
        with lock:
            made.append(key)
            first = len(made) == 1
        if first:
            failed.set()
            raise StoreFull("no space left")
        failed.wait(30)

    arena = Arena()
    with pytest.raises(SaveFailed) as caught:
        save(Asking(MemoryStore(), before), flat_of(arrays), arena=arena, stage_options=CUT, workers=3)
    assert type(caught.value.__cause__) is StoreFull
    assert len(made) <= 10  # of 30: a worker may begin one more before the error is noted
    assert free(arena)


def test_cancelling_before_the_first_chunk_stores_nothing():
    """Not one request."""
    store, arena = Count(MemoryStore()), Arena()

    def cancel():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save(store, flat_of(random_arrays()), arena=arena, cancel=cancel)
    assert store.calls == {}
    assert free(arena)


def test_the_memory_of_a_pack_is_not_touched_until_it_is_stored():
    """While create runs, the body does not change, whatever the other workers do."""
    changed = []
    barrier = threading.Barrier(2)

    def before(key, body):
        start = digest_of(body)
        with contextlib.suppress(threading.BrokenBarrierError):
            barrier.wait(0.2)  # so that two are under way at once
        changed.append(digest_of(body) != start)

    arrays = random_arrays(count=12, size=5000)
    arena = Arena()
    base = MemoryStore()
    first = save(base, flat_of(arrays), stage_options=CUT)
    for n in (1, 4, 7, 10):
        arrays[f"w{n}"][3000:] += 1
    save(
        Asking(base, before), flat_of(arrays), name="b", known=known_of(first.index), arena=arena, stage_options=CUT,
        workers=2,
    )  # fmt: skip
    assert changed == [False] * 4


def test_the_staging_memory_is_held_until_the_last_byte_is_stored():
    """And free right after."""
    arena, held = Arena(), []

    def before(key, body):
        try:
            arena.take(1)
        except RuntimeError:
            held.append(key)

    saved = save(Asking(MemoryStore(), before), flat_of(random_arrays()), arena=arena, stage_options=CUT)
    assert sorted(held) == sorted(saved.uploaded.packs)
    assert free(arena)


def test_progress_rises_to_the_size_of_the_state():
    """One event for each pack, skipped ones too."""
    arrays, events = random_arrays(), []
    first = save(MemoryStore(), flat_of(arrays), stage_options=CUT)
    for known in ({}, known_of(first.index)):
        events.clear()
        save(MemoryStore(), flat_of(arrays), stage_options=CUT, known=known, listener=events.append)
        done = [event.done for event in events]
        assert all(type(event) is Transferred and event.what == "upload" for event in events)
        assert done == sorted(done)
        assert done[-1] == events[-1].total == 6 * 1700


def test_shards_come_in_the_pieces_order_with_their_chunks_in_order():
    """Whichever worker was first."""
    arrays = random_arrays(count=9, size=4321)
    staged = staged_of(flat_of(arrays), chunk_bytes=500, pack_bytes=3000)
    uploaded = upload(staged, store=MemoryStore(), pack_key=keys(), known={}, workers=4)
    assert [shard.path for shard in uploaded.shards] == list(arrays)
    for shard, body in zip(uploaded.shards, contents(arrays), strict=True):
        assert [chunk.digest for chunk in shard.chunks] == [
            digest_of(body[at : at + 500]) for at in range(0, 4321, 500)
        ]
    assert [int(key.rsplit("-", 1)[1].split(".")[0]) for key in uploaded.packs] == list(
        range(len(staged.packs))
    )


def test_packs_are_told_in_their_order_whichever_was_stored_first():
    """Indexes of equal saves are equal."""
    later = threading.Event()

    def before(key, body):
        if "-0." in key:
            assert later.wait(30)
        else:
            later.set()

    saved = save(Asking(MemoryStore(), before), flat_of(random_arrays()), stage_options=CUT, workers=2)
    plain = save(MemoryStore(), flat_of(random_arrays()), stage_options=CUT, workers=1)
    assert saved.index == plain.index
