"""Uploading: each chunk once, valid safetensors, frozen bytes, errors with names."""

import threading

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.errors import AccessDenied, Fenced, SaveFailed, StoreFull
from everstep.format.box import Box
from everstep.store.count import Count
from everstep.store.fault import Crashed, Fault, Injection, Kind, Scripted
from everstep.store.memory import MemoryStore
from everstep.transfer.memory import Arena
from everstep.transfer.pacer import Pacer
from everstep.transfer.upload import upload
from tests.transfer.made import flat_of, keys, known_of, restore, save, staged_of


def noise(size, seed=0):
    """Bytes that no two chunks share."""
    return np.random.default_rng(seed).integers(0, 255, size, np.uint8)


def test_ninety_percent_frozen_stores_ten_percent():
    """Of a state with nine tenths unchanged about a tenth of the bytes goes to the store, and it restores whole."""
    store, arena = Count(MemoryStore()), Arena()
    arrays = {f"layer/{n}": noise(1_000_000, n) for n in range(20)}
    options = {"chunk_bytes": 100_000, "pack_bytes": 3_000_000}
    first = save(store, flat_of(arrays), name="one", arena=arena, stage_options=options)
    assert store.bytes_in == first.uploaded.stored_bytes > 20_000_000
    store.clear()
    changed = arrays | {f"layer/{n}": noise(1_000_000, 100 + n) for n in (3, 11)}
    second = save(
        store, flat_of(changed), name="two", arena=arena, known=known_of(first.index), stage_options=options
    )
    assert store.bytes_in == second.uploaded.stored_bytes
    assert 2_000_000 < store.bytes_in < 2_050_000
    assert store.calls["create"] == 2
    got = restore(store, flat_of(changed), [second.index])
    assert got == [array.tobytes() for array in changed.values()]


def test_nothing_new_writes_nothing():
    """A state that did not change makes no object at all."""
    store = Count(MemoryStore())
    flat = flat_of({"a": noise(5000)})
    first = save(store, flat, name="one")
    store.clear()
    second = save(store, flat, name="two", known=known_of(first.index))
    assert not store.calls
    assert second.uploaded.stored_bytes == 0
    assert second.uploaded.packs == first.uploaded.packs


@pytest.mark.parametrize("workers", [1, 4])
def test_equal_chunks_of_one_save_are_stored_once(workers):
    """A chunk that appears many times in a save, in several packs, is stored by one of them."""
    store = Count(MemoryStore())
    flat = flat_of({f"moment/{n}": np.zeros(100_000, np.uint8) for n in range(30)})
    done = save(store, flat, workers=workers, stage_options={"chunk_bytes": 50_000, "pack_bytes": 500_000})
    assert done.uploaded.stored_bytes < 50_000 + 2 * 4096
    assert store.calls["create"] == 1
    assert restore(store, flat, [done.index]) == [bytes(100_000)] * 30


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 3)), max_size=12),
    st.integers(1, 90),
    st.integers(1, 500),
    st.sets(st.integers(0, 60)),
)
def test_whatever_is_skipped(pieces, chunk_bytes, pack_bytes, old):
    """Whichever chunks are known, the rest closes up in place and everything restores."""
    store = MemoryStore()
    arrays = {f"p{n}": noise(size, seed) for n, (size, seed) in enumerate(pieces)}
    options = {"chunk_bytes": chunk_bytes, "pack_bytes": pack_bytes}
    first = save(store, flat_of(arrays), name="one", stage_options=options)
    known = {d: at for n, (d, at) in enumerate(known_of(first.index).items()) if n in old}
    done = save(store, flat_of(arrays), name="two", known=known, stage_options=options)
    assert restore(store, flat_of(arrays), [done.index]) == [array.tobytes() for array in arrays.values()]
    for key in done.uploaded.packs:
        safetensors.numpy.load(store.get(key, 2**20))


def test_packs_are_safetensors_files():
    """The safetensors library alone opens a pack: names are paths with their box, dtypes and shapes as they were."""
    store = MemoryStore()
    arrays = {
        "model/w": np.arange(600, dtype="f4").reshape(20, 30),
        "model/h": np.arange(7, dtype="f2"),
        "step": np.array(3, "i8"),
        "cut": np.arange(64, dtype="u1").reshape(8, 8),
        "complex": np.arange(4, dtype="c16"),
    }
    boxes = {"cut": [Box((0, 0), (8, 4)), Box((0, 4), (8, 4))]}
    done = save(store, flat_of(arrays, boxes=boxes))
    (key,) = done.uploaded.packs
    found = safetensors.numpy.load(store.get(key, 2**20))
    for path in ("model/w", "model/h", "step"):
        assert found[path].dtype == arrays[path].dtype
        assert np.array_equal(found[path], arrays[path])
    assert np.array_equal(found["cut[0:8,0:4]"], arrays["cut"][:, :4])
    assert np.array_equal(found["cut[0:8,4:8]"], arrays["cut"][:, 4:])
    assert found["complex"].tobytes() == arrays["complex"].tobytes()


def test_parts_of_a_tensor_are_named_by_their_bytes():
    """Where some chunks of a tensor are elsewhere, those that are here stand as bytes with their range."""
    store = MemoryStore()
    array = noise(400)
    first = save(store, flat_of({"w": array}), name="one", stage_options={"chunk_bytes": 100})
    known = dict(list(known_of(first.index).items())[1:2])
    done = save(store, flat_of({"w": array}), name="two", known=known, stage_options={"chunk_bytes": 100})
    found = safetensors.numpy.load(store.get(done.uploaded.packs[0], 2**20))
    assert {name: body.tobytes() for name, body in found.items()} == {
        "w#0-100": array[:100].tobytes(),
        "w#200-400": array[200:].tobytes(),
    }


def test_a_change_after_staging_changes_nothing_that_is_stored():
    """While threads write over the live state as fast as they can, what is stored is what was staged."""
    store, arena = MemoryStore(), Arena()
    arrays = {f"w{n}": np.zeros(3_000_000, np.uint8) for n in range(6)}
    flat, stop = flat_of(arrays), threading.Event()
    for round_ in range(3):
        for n, array in enumerate(arrays.values()):
            array[:] = noise(array.size, 10 * round_ + n)
        expected = [array.tobytes() for array in arrays.values()]
        staged = staged_of(flat, arena, pack_bytes=4_000_000)
        stop.clear()

        def mutate():
            while not stop.is_set():
                for array in arrays.values():
                    np.add(array, 1, out=array)

        threads = [threading.Thread(target=mutate) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            done = upload(staged, store=store, pack_key=keys(str(round_)), known={})
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        got = b"".join(
            store.get(done.packs[c.pack], 2**30)[c.offset : c.offset + c.length]
            for shard in done.shards
            for c in shard.chunks
        )
        assert got == b"".join(expected)


def test_an_answer_that_was_lost_is_read_back():
    """A create whose answer was lost and that is told AlreadyExists the next time is a success: it is one's own."""

    class Lost(Count):
        def create(self, key, body):
            self._inner.create(key, body)
            super().create(key, body)

    store = Lost(MemoryStore())
    flat = flat_of({"a": noise(20_000_000)})
    done = save(store, flat)
    assert restore(store, flat, [done.index]) == [noise(20_000_000).tobytes()]


def test_a_key_taken_by_others():
    """An object of other bytes, or of another length, under the key is an error that names it."""
    flat = flat_of({"a": noise(1000)})
    for body in (b"other", bytes(4096 + 1000)):
        store = MemoryStore()
        store.create(keys()(0), body)
        with pytest.raises(SaveFailed, match=r"packs/00/save/0-0.safetensors: the key is taken"):
            save(store, flat)


@pytest.mark.parametrize(("kind", "error"), [(Kind.FULL, SaveFailed), (Kind.DENIED, AccessDenied)])
def test_what_the_store_says(kind, error):
    """A full disk fails the save by key and bytes, with its cause; denied access stays what it is."""
    store = Fault(MemoryStore(), Scripted(Injection(kind=kind, at=2, verb="create")))
    flat = flat_of({f"p{n}": noise(900, n) for n in range(5)})
    arena = Arena()
    with pytest.raises(error) as caught:
        save(store, flat, arena=arena, workers=1, stage_options={"pack_bytes": 1000})
    assert "0-1.safetensors" in str(caught.value)
    if error is SaveFailed:
        assert isinstance(caught.value.__cause__, StoreFull)
        assert caught.value.fields["bytes"] == 4096 + 900
    save(MemoryStore(), flat, arena=arena)


def test_a_crash_at_every_call():
    """Whichever call the process dies at, before or after it was done: nothing is half there, nothing hangs."""
    flat = flat_of({f"p{n}": noise(900, n) for n in range(6)})
    options = {"pack_bytes": 1000}
    inner = MemoryStore()
    save(inner, flat, stage_options=options)
    whole = {listed.key: inner.get(listed.key, 2**20) for listed in inner.list("")}
    assert len(whole) == 6
    for kind in (Kind.CRASH_BEFORE, Kind.CRASH_AFTER):
        for at in range(1, 7):
            inner = MemoryStore()
            with pytest.raises(Crashed):
                save(Fault(inner, Scripted(Injection(kind=kind, at=at))), flat, stage_options=options)
            for listed in inner.list(""):
                assert inner.get(listed.key, 2**20) == whole[listed.key]


def test_cancelling():
    """What the cancel check raises ends the upload before the next pack, as it is."""
    store, asked = Count(MemoryStore()), []

    def cancel():
        asked.append(1)
        if len(asked) > 5:
            raise Fenced("attempt 2 owns the run")

    flat = flat_of({f"p{n}": noise(900, n) for n in range(50)})
    with pytest.raises(Fenced):
        save(store, flat, cancel=cancel, workers=1, stage_options={"pack_bytes": 1000})
    assert store.calls["create"] < 5


def test_every_byte_is_paced_and_told():
    """The pacer is asked for all bytes, and progress ends at the total."""
    taken, told = [], []

    class Watched(Pacer):
        def take(self, nbytes):
            taken.append(nbytes)

    flat = flat_of({f"p{n}": noise(2_000_000, n) for n in range(5)})
    save(MemoryStore(), flat, pacer=Watched(), listener=told.append, stage_options={"pack_bytes": 4_000_000})
    assert 10_000_000 <= sum(taken) <= 10_000_000 + 5 * 2**20
    assert [event.done for event in told] == sorted(event.done for event in told)
    assert told[-1].done == told[-1].total == 10_000_000


def test_a_state_without_bytes():
    """A state of plain values alone writes no pack."""
    store = Count(MemoryStore())
    done = save(store, flat_of({"empty": np.zeros((0, 3), "f4")}))
    assert not store.calls
    assert done.uploaded.packs == ()
    assert [shard.chunks for shard in done.uploaded.shards] == [()]
