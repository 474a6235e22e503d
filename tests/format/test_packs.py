"""A pack is a safetensors file that the library alone can open."""

from __future__ import annotations

import json

import numpy as np
import pytest
import safetensors
import safetensors.numpy
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from everstep.errors import InvalidManifest
from everstep.format.box import Box
from everstep.format.dtypes import ITEM_BYTES
from everstep.format.packs import (
    PAGE,
    PackEntry,
    entry_name,
    entry_room,
    header_room,
    pack_entry,
    parse_header,
    write_header,
)


def pack_of(entries, data):
    """A whole pack in memory."""
    room = header_room(sum(len(entry.name) * 6 + 200 for entry in entries))
    header = bytearray(room)
    write_header(entries, memoryview(header))
    return bytes(header) + data


ENTRIES = [
    pack_entry("model/0/weight", "float32", (4, 4), Box((0, 2), (4, 2))),
    pack_entry("odd#[", "uint8", (10,), Box.whole((10,)), start=2, end=5),
    pack_entry("scalar", "int64", (), Box.whole(())),
    pack_entry("complex", "complex128", (2,), Box.whole((2,))),
    pack_entry("__metadata__", "bool", (3,), Box.whole((3,))),
]
DATA = np.arange(8, dtype="<f4").tobytes() + b"abc" + (7).to_bytes(8, "little") + bytes(32) + b"\x01\x00\x01"


def test_the_library_opens_a_pack_with_numpy_and_torch(tmp_path):
    """Names, types, shapes and bytes are what was put in; the data begins at a whole page."""
    file = tmp_path / "0-0.safetensors"
    file.write_bytes(pack_of(ENTRIES, DATA))
    expected = {
        "model/0/weight[0:4,2:4]": (np.float32, (4, 2)),
        "odd~h~b#2-5": (np.uint8, (3,)),
        "scalar": (np.int64, ()),
        "complex": (np.uint8, (32,)),
        "~m": (np.bool_, (3,)),
    }
    arrays = safetensors.numpy.load_file(file)
    assert {name: (array.dtype, array.shape) for name, array in arrays.items()} == expected
    np.testing.assert_array_equal(arrays["model/0/weight[0:4,2:4]"], np.arange(8, dtype="<f4").reshape(4, 2))
    assert arrays["odd~h~b#2-5"].tobytes() == b"abc"
    tensors = safetensors.torch.load_file(file)
    assert tensors["scalar"].item() == 7
    assert torch.equal(tensors["~m"], torch.tensor([True, False, True]))
    with safetensors.safe_open(file, "pt") as opened:
        metadata = opened.metadata()
        assert metadata["everstep"] == "1"
        assert len(metadata["check"]) == 64


def test_every_element_type_can_be_opened(tmp_path):
    """A type that safetensors lacks is there as bytes."""
    entries = [pack_entry(dtype, dtype, (2, 3), Box.whole((2, 3))) for dtype in ITEM_BYTES]
    file = tmp_path / "0-0.safetensors"
    file.write_bytes(pack_of(entries, bytes(6 * sum(ITEM_BYTES.values()))))
    tensors = safetensors.torch.load_file(file)
    assert sorted(tensors) == sorted(ITEM_BYTES)
    assert tensors["bfloat16"].dtype is torch.bfloat16
    assert tensors["float8_e8m0fnu"].dtype is torch.float8_e8m0fnu
    assert tensors["complex256"].shape == (6 * 32,)


def test_parsing_gives_back_what_was_written():
    """Offsets count from the beginning of the pack, without holes."""
    pack = pack_of(ENTRIES, DATA)
    found = parse_header(pack[:PAGE], len(pack))
    assert [PackEntry(f.name, f.dtype, f.shape, f.nbytes) for f in found] == ENTRIES
    assert found[0].offset == PAGE
    assert found[-1].offset + found[-1].nbytes == len(pack)


def test_names_of_parts():
    """The box and the bytes stand in the name when they are not all."""
    assert entry_name("a/b", (4,), Box.whole((4,))) == "a/b"
    assert entry_name("a/b", (4, 2), Box((1, 0), (2, 2))) == "a/b[1:3,0:2]"
    assert pack_entry("a", "float32", (4,), Box.whole((4,)), start=0, end=16).name == "a"
    assert pack_entry("a", "float32", (4,), Box.whole((4,)), start=4).name == "a#4-16"
    assert pack_entry("a", "float32", (4,), Box((2,), (2,)), start=0, end=4).name == "a[2:4]#0-4"
    assert entry_name("a[1:3]", (4,), Box.whole((4,))) != entry_name("a", (4,), Box((1,), (2,)))


@given(
    st.text(st.characters(exclude_categories=("Cs",)), min_size=1),
    st.sampled_from(sorted(ITEM_BYTES)),
    st.lists(st.tuples(st.integers(0, 2**20), st.integers(1, 2**20)), max_size=3),
    st.data(),
)
def test_the_room_that_is_planned_is_enough(path, dtype, box, data):
    """Any part of a box fits into the room planned for the box, at any place in a pack."""
    shape = tuple(at + size + 1 for at, size in box)
    part = Box(tuple(at for at, _ in box), tuple(size for _, size in box))
    nbytes = part.elements * ITEM_BYTES[dtype]
    start = data.draw(st.integers(0, nbytes - 1))
    end = data.draw(st.integers(start + 1, nbytes))
    far = PackEntry("far", "U8", (2**50 - nbytes,), 2**50 - nbytes)
    rooms = entry_room("far", "uint8", (2**50,), Box.whole((2**50,)))
    for entry in (
        pack_entry(path, dtype, shape, part),
        pack_entry(path, dtype, shape, part, start=start, end=end),
    ):
        header = bytearray(PAGE)
        write_header([far, entry], memoryview(header))
        alone = bytearray(PAGE)
        write_header([far], memoryview(alone))
        grown = len(header[8:].rstrip()) - len(alone[8:].rstrip())
        assert grown <= entry_room(path, dtype, shape, part)
        assert header_room(rooms + entry_room(path, dtype, shape, part)) <= 3 * PAGE


def test_a_header_that_does_not_fit_or_repeats_a_name_is_not_written():
    """Nothing is written that a reader would refuse."""
    entry = PackEntry("a", "U8", (1,), 1)
    for entries, room in [([entry, entry], PAGE), ([entry], 100), ([entry._replace(name="x" * PAGE)], PAGE)]:
        with pytest.raises(InvalidManifest):
            write_header(entries, memoryview(bytearray(room)))


def header(text, *, length=None, size=None):
    """A pack of a header alone, or one that claims more."""
    raw = text if isinstance(text, bytes) else json.dumps(text, separators=(",", ":")).encode()
    room = PAGE - 8 if length is None else length
    pack = room.to_bytes(8, "little") + raw.ljust(PAGE - 8)
    return pack, PAGE if size is None else size


def one(**fields):
    """One byte entry with some fields changed."""
    return {"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]} | fields}


@pytest.mark.parametrize(
    ("pack", "field"),
    [
        ((b"\0" * 4, 4), "header"),
        (header({}, length=2**63), "header"),
        (header({}, length=PAGE), "header"),
        (header({}, length=100), "header"),
        (header({}, length=2 * PAGE - 8, size=2 * PAGE), "header"),
        (header(b"not json"), "header"),
        (header(b'{"a":1}'), "header"),
        (header(b"[" * 4000), "header"),
        (header(b'{ "a":{}}'), "header"),
        (
            header(json.dumps(one())[:-1].encode() + b"," + json.dumps(one())[1:].encode(), size=PAGE + 1),
            "header",
        ),
        (header(one(dtype="F128"), size=PAGE + 1), "a.dtype"),
        (header(one(dtype=[]), size=PAGE + 1), "a.dtype"),
        (header(one(shape=[-1]), size=PAGE + 1), "a.shape"),
        (header(one(shape=[2**62, 4]), size=PAGE + 1), "a.shape"),
        (header(one(shape="1"), size=PAGE + 1), "a.shape"),
        (header(one(shape=[True]), size=PAGE + 1), "a.shape"),
        (header(one(shape=[1] * 65), size=PAGE + 1), "a.shape"),
        (header(one(data_offsets=[1, 2]), size=PAGE + 2), "a.data_offsets"),
        (header(one(data_offsets=[0, 2]), size=PAGE + 2), "a.data_offsets"),
        (header(one(data_offsets=[0]), size=PAGE + 1), "a.data_offsets"),
        (header(one(), size=PAGE + 2), "data_offsets"),
        (header(one(), size=PAGE), "data_offsets"),
    ],
)
def test_a_broken_header_is_refused_by_field(pack, field):
    """Lengths, holes, overlaps, overflow and doubles are refused before anything is read by them."""
    head, size = pack
    with pytest.raises(InvalidManifest) as caught:
        parse_header(head, size)
    assert caught.value.fields["field"] == field
