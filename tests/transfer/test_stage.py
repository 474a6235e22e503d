"""Staging: the whole state, laid out as packs, copied so that it may change at once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.format.packs import PAGE
from everstep.transfer.layout import lay_out, pack_bytes_for
from everstep.transfer.memory import Arena
from tests.transfer.made import flat_of, staged_of


def content(staged):
    """The bytes of each piece, gathered from the packs."""
    out = [bytearray(piece.nbytes) for piece in staged.pieces]
    for pack in staged.packs:
        for part in pack.layout.parts:
            out[part.piece][part.start : part.start + part.length] = pack.image[
                part.offset : part.offset + part.length
            ]
    return [bytes(body) for body in out]


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 3000), max_size=12),
    st.integers(1, 700),
    st.integers(1, 2000),
    st.sets(st.integers(0, 11)),
)
def test_all_bytes_are_staged(sizes, chunk_bytes, pack_bytes, hidden):
    """Whatever the sizes of pieces, chunks and packs, each byte is staged, and chunks of a pack leave no gap."""
    rng = np.random.default_rng(1)
    arrays = {f"p{n}": rng.integers(0, 255, size, np.uint8) for n, size in enumerate(sizes)}
    flat = flat_of(arrays, hidden={f"p{n}" for n in hidden})
    staged = staged_of(flat, chunk_bytes=chunk_bytes, pack_bytes=pack_bytes)
    assert content(staged) == [array.tobytes() for array in arrays.values()]
    for pack in staged.packs:
        at = pack.layout.room
        assert at % PAGE == pack.layout.base % PAGE == 0
        for part in pack.layout.parts:
            assert part.offset == at
            assert 0 < part.length <= chunk_bytes
            at += part.length
        assert at == pack.layout.end == pack.image.nbytes


def test_large_pieces_are_copied_by_threads_and_sliced():
    """Pieces over many slices and packs arrive whole."""
    rng = np.random.default_rng(1)
    arrays = {"big": rng.integers(0, 255, 30_000_001, np.uint8), "x": np.arange(5.0)}
    staged = staged_of(flat_of(arrays), pack_bytes=9_000_000, workers=4)
    assert len(staged.packs) > 3
    assert content(staged) == [array.tobytes() for array in arrays.values()]


def test_a_source_without_a_view_stays_in_one_pack():
    """What copies itself does so once, straight into one pack, however large it is."""
    arrays = {
        "a": np.arange(50, dtype="u1"),
        "dev": np.arange(250, dtype="u1"),
        "b": np.arange(50, dtype="u1"),
    }
    flat = flat_of(arrays, hidden={"dev"})
    staged = staged_of(flat, chunk_bytes=64, pack_bytes=100)
    assert content(staged) == [array.tobytes() for array in arrays.values()]
    assert flat.pieces[1].source.copies == 1
    assert [[part.piece for part in pack.layout.parts] for pack in staged.packs] == [[0], [1] * 4, [2]]


def test_the_device_is_waited_for():
    """Copies that still run on return of a source are complete when staging is done."""
    late = []

    class Device:
        def view(self):
            return None

        def copy_to(self, into):
            late.append(into)

    flat = flat_of({"a": np.zeros(4, "u1")})
    object.__setattr__(flat.pieces[0], "source", Device())

    def synchronize():
        late[0][:] = b"done"

    object.__setattr__(flat, "synchronize", synchronize)
    assert content(staged_of(flat)) == [b"done"]


def test_a_source_that_fails_leaves_the_memory_free():
    """When a source raises, staging raises it, and the next save can have the memory."""

    class Broken:
        def view(self):
            raise OSError("device lost")

    arena = Arena()
    flat = flat_of({"a": np.zeros(4, "u1")})
    object.__setattr__(flat.pieces[0], "source", Broken())
    with pytest.raises(OSError, match="device lost"):
        staged_of(flat, arena)
    staged_of(flat_of({"a": np.zeros(4, "u1")}), arena)


def test_a_view_of_another_size_is_refused():
    """A source whose memory is not what it said is an error that names the leaf."""
    flat = flat_of({"a/b": np.zeros(400_000, "u1")})
    object.__setattr__(flat.pieces[0], "nbytes", 100)
    with pytest.raises(ValueError, match="a/b: 400000 bytes"):
        staged_of(flat)


def test_about_twenty_packs():
    """Packs have 64 MiB and more, so that a save makes at most about twenty, and never over what a PUT may have."""
    assert pack_bytes_for(10) == 64 * 2**20
    for nbytes in (1_493_000_000, 10**10, 7 * 10**10):
        assert 10 <= -(-nbytes // pack_bytes_for(nbytes)) <= 20
    assert pack_bytes_for(10**13) == 4 * 2**30


def test_many_small_leaves_do_not_burst_a_header():
    """A pack is closed when its header grows large, not only when its bytes do."""
    flat = flat_of({f"{'long' * 200}/{n}": np.zeros(1, "u1") for n in range(30_000)})
    shapes = {entry.path: entry.shape for entry in flat.entries}
    layout = lay_out(flat.pieces, shapes, chunk_bytes=8, pack_bytes=2**30)
    assert len(layout.packs) == 2
    assert all(pack.room < 17 * 2**20 for pack in layout.packs)
