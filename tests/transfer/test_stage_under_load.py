"""Training goes on from the moment that staging returns: what is stored is what was, whatever comes after."""

import threading

import numpy as np
import pytest
import torch

from everstep.format.box import Box
from everstep.format.limits import CHUNK_BYTES
from everstep.plan import plan_load
from everstep.state import assemble, flatten
from everstep.state.flat import Flat, Piece
from everstep.store.memory import MemoryStore
from everstep.transfer import layout
from everstep.transfer.download import download
from everstep.transfer.layout import lay_out, pack_bytes_for
from everstep.transfer.memory import Arena
from everstep.transfer.upload import upload
from tests.transfer.made import flat_of, keys, restore, save, staged_of


class Sized:
    """A shard of any size that takes no memory."""

    def __init__(self, nbytes):
        self.path, self.dtype, self.nbytes = "w", "uint8", nbytes
        self.box = Box((0,), (nbytes,))


@pytest.mark.parametrize("round_", range(5))
def test_changes_right_after_staging_are_never_stored(round_):
    """Threads overwrite all arrays while packs are hashed and stored; the store gets what was there before."""
    rng = np.random.default_rng(round_)
    arrays = {f"w{n}": rng.integers(0, 255, 700_000 + n, np.uint8) for n in range(8)}
    arrays["small"] = rng.standard_normal(10)
    before = [array.tobytes() for array in arrays.values()]
    flat = flat_of(arrays, hidden={"w3", "small"})
    stop = threading.Event()

    def train(array):
        raw = array.view(np.uint8).reshape(-1)
        while not stop.is_set():
            raw += 1

    store, arena = MemoryStore(), Arena()
    staged = staged_of(flat, arena, chunk_bytes=100_000, pack_bytes=1_000_000)
    threads = [threading.Thread(target=train, args=(array,)) for array in list(arrays.values())[-3:]]
    for array in arrays.values():
        array.view(np.uint8).reshape(-1)[:] ^= 0xFF
    for thread in threads:
        thread.start()
    try:
        uploaded = upload(staged, store=store, pack_key=keys(), known={}, workers=2)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    stored = []
    for shard in uploaded.shards:
        body = b""
        for chunk in shard.chunks:
            part = bytearray(chunk.length)
            store.get_range(uploaded.packs[chunk.pack], chunk.offset, memoryview(part))
            body += part
        stored.append(body)
    assert stored == before


def test_arrays_that_are_not_contiguous_are_stored_and_come_back():
    """Transposed, strided, reversed, broadcast: they come back as NumPy and torch read them."""
    whole = np.arange(720, dtype=np.float32).reshape(8, 9, 10)
    state = {
        "transposed": whole.T,
        "strided": whole[::2, :, 1::3],
        "reversed": whole[:, ::-1],
        "broadcast": np.broadcast_to(whole[0], (3, 9, 10)),
        "fortran": np.asfortranarray(whole),
        "torch_t": torch.arange(300_000).reshape(500, 600).t(),
        "torch_stride": torch.arange(1000.0)[::7],
        "torch_expand": torch.ones(1, 5).expand(4, 5),
        "torch_channels": torch.arange(240.0).reshape(2, 3, 4, 10).to(memory_format=torch.channels_last),
    }
    flat, store = flatten(state), MemoryStore()
    saved = save(store, flat, stage_options={"chunk_bytes": 1000, "pack_bytes": 20_000})
    restoration = assemble(flat.entries)
    reads = plan_load(restoration.wanted, [saved.index])
    download(store, reads, restoration.wanted, run="run", step=7)
    restored = restoration.finish()
    for path, value in state.items():
        np.testing.assert_array_equal(np.asarray(restored[path]), np.asarray(value), err_msg=path)


def test_ten_thousand_small_leaves_make_one_pack():
    """One request, not one for each leaf; all come back."""
    arrays = {f"layer/{n}/bias": np.full(n % 7 + 1, n, np.int32) for n in range(10_000)}
    store, flat = MemoryStore(), flat_of(arrays)
    saved = save(store, flat)
    assert len(saved.uploaded.packs) == 1
    assert restore(store, flat, [saved.index]) == [array.tobytes() for array in arrays.values()]


def test_scalars_and_empty_tensors():
    """A 0-d tensor has one element, one without elements has no chunk; a state of none has no pack."""
    arrays = {
        "loss": np.float32(1.5), "empty": np.zeros((0, 7)), "step": np.int64(9), "hollow": np.zeros((3, 0)),
    }  # fmt: skip
    store, flat = MemoryStore(), flat_of(arrays)
    saved = save(store, flat)
    assert [len(shard.chunks) for shard in saved.uploaded.shards] == [1, 0, 1, 0]
    assert restore(store, flat, [saved.index]) == [np.asarray(a).tobytes() for a in arrays.values()]
    nothing = staged_of(flat_of({"e": np.zeros(0)}))
    assert nothing.packs == ()
    assert nothing.nbytes == 0


@pytest.mark.parametrize("nbytes", [2**31 - 1, 2**31 + 1, 2**32 + 5, 70 * 2**30 + 3])
def test_tensors_over_two_and_four_gib_are_laid_out_whole(nbytes):
    """Every byte has its place once, offsets do not wrap, and no object is larger than one request may be."""
    made = lay_out(
        [Sized(nbytes)], {"w": (nbytes,)}, chunk_bytes=CHUNK_BYTES, pack_bytes=pack_bytes_for(nbytes)
    )
    at = 0
    for pack in made.packs:
        assert pack.end <= 4 * 2**30 + pack.room
        for part in pack.parts:
            assert part.start == at
            assert 0 < part.length <= CHUNK_BYTES
            at += part.length
    assert at == nbytes
    assert made.size >= nbytes
    ends = [pack.base + pack.end for pack in made.packs]
    assert all(end <= after.base for end, after in zip(ends, made.packs[1:], strict=False))
    assert len(made.packs) <= 21


@pytest.mark.parametrize("nbytes", [4 * 2**30, 4 * 2**30 + 1])
def test_what_cannot_be_parted_stays_together_up_to_four_gib(nbytes):
    """A source without a view that fits one object is in one; a larger one is parted."""
    made = lay_out(
        [Sized(10), Sized(nbytes), Sized(10)],
        {"w": (nbytes,)},
        chunk_bytes=CHUNK_BYTES,
        pack_bytes=64 * 2**20,
        unparted=frozenset({1}),
    )
    packs = [n for n, pack in enumerate(made.packs) if any(part.piece == 1 for part in pack.parts)]
    assert (len(packs) == 1) == (nbytes <= 4 * 2**30)


def test_a_source_that_must_be_parted_and_has_no_view_goes_through_memory_of_its_own(monkeypatch):
    """Over the largest object (made small here) it is copied once, after the device is done, and parted."""
    monkeypatch.setattr(layout, "_LARGEST", 1000)
    rng = np.random.default_rng(0)
    array = rng.integers(0, 255, 5000, np.uint8)
    order = []

    class Device:
        def view(self):
            return None

        def copy_to(self, into):
            order.append(into)

    def synchronize():
        for into in order:
            into[:] = array.tobytes()

    made = flat_of({"w": array})
    piece = made.pieces[0]
    flat = Flat(
        entries=made.entries,
        pieces=(Piece(path="w", dtype=piece.dtype, box=piece.box, nbytes=piece.nbytes, source=Device()),),
        synchronize=synchronize,
    )
    staged = staged_of(flat, chunk_bytes=300, pack_bytes=1000)
    assert len(staged.packs) > 4
    assert len(order) == 1
    images = b"".join(bytes(pack.image[pack.layout.room : pack.layout.end]) for pack in staged.packs)
    assert images == array.tobytes()


def test_what_was_staged_is_not_the_memory_of_the_next_save_before_release():
    """A second save into the same memory is refused as long as the first one reads it."""
    arena = Arena()
    first = staged_of(flat_of({"a": np.arange(10)}), arena)
    with pytest.raises(RuntimeError, match="in use"):
        staged_of(flat_of({"a": np.zeros(10)}), arena)
    first.release()
    staged_of(flat_of({"a": np.zeros(10)}), arena)


def test_a_copy_that_fails_half_way_leaves_the_memory_free():
    """The error is the source's, and the next save can have the memory."""

    class Broken:
        def view(self):
            return None

        def copy_to(self, into):
            raise OSError("device lost")

    made = flat_of({"a": np.arange(9), "w": np.arange(9)})
    last = made.pieces[1]
    broken = Piece(path="w", dtype=last.dtype, box=last.box, nbytes=last.nbytes, source=Broken())
    flat = Flat(entries=made.entries, pieces=(made.pieces[0], broken), synchronize=lambda: None)
    arena = Arena()
    with pytest.raises(OSError, match="device lost"):
        staged_of(flat, arena)
    staged_of(made, arena)
