"""What was written once is read for ever, and written alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from everstep.format.packs import PackEntry, parse_header
from everstep.format.wire import from_bytes, to_bytes
from tests.format.examples import OBJECTS, PACK_ENTRIES, pack_header

GOLDEN = Path(__file__).parent / "golden" / "v1"


@pytest.mark.parametrize("name", OBJECTS)
def test_an_object_of_version_1_is_read_and_written_alike(name):
    """Frozen bytes read as the struct they were made from, and the struct is written as those bytes."""
    frozen = (GOLDEN / f"{name}.json").read_bytes()
    assert from_bytes(frozen, type(OBJECTS[name])) == OBJECTS[name]
    assert to_bytes(OBJECTS[name]) == frozen


def test_a_pack_header_of_version_1_is_read_and_written_alike():
    """The same for the header of a pack."""
    frozen = (GOLDEN / "pack-header.safetensors").read_bytes()
    found = parse_header(frozen, len(frozen) + sum(entry.nbytes for entry in PACK_ENTRIES))
    assert tuple(PackEntry(f.name, f.dtype, f.shape, f.nbytes) for f in found) == PACK_ENTRIES
    assert pack_header() == frozen
