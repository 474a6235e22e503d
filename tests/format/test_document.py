"""The normative page says what the code does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from everstep.format import limits, values
from everstep.format.dtypes import ITEM_BYTES, SAFETENSORS_NAME

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "format.md").read_text()
GOLDEN = {
    file.stem: json.loads(file.read_bytes()) for file in (ROOT / "tests/format/golden/v1").glob("*.json")
}


def test_its_json_is_that_of_the_golden_files():
    """Each example is one of the frozen objects, in full."""
    blocks = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
    assert len(blocks) == 15
    assert all(block in GOLDEN.values() for block in blocks)


def test_its_table_of_element_types_is_the_codes():
    """Every type with its size and its name in safetensors."""
    rows = {
        dtype: (int(size), name.strip("`"))
        for dtype, size, name in re.findall(r"^\| `(\w+)` \| (\d+) \| (\S*) ?\|$", PAGE, re.MULTILINE)
    }
    assert rows == {dtype: (size, SAFETENSORS_NAME.get(dtype, "")) for dtype, size in ITEM_BYTES.items()}


def test_it_knows_every_kind_of_value():
    """Each kind has a row."""
    table = PAGE.split("## Values")[1].split("## Element types")[0]
    named = set(
        re.findall(
            r"`(\w+)`", "".join(row.split("|")[1] for row in table.splitlines() if row.startswith("| `"))
        )
    )
    assert named == set(values._READERS)


@pytest.mark.parametrize(
    ("row", "limit"),
    [
        ("a record | 4 MiB", limits.MAX_RECORD_BYTES == 4 * 2**20),
        (
            "an index, a manifest | 256 MiB",
            limits.MAX_INDEX_BYTES == limits.MAX_MANIFEST_BYTES == 256 * 2**20,
        ),
        ("values in one object | 33,554,432", limits.MAX_JSON_NODES == 33_554_432),
        ("nesting of JSON | 288", limits.MAX_JSON_DEPTH == 288),
        ("nesting of the state; of one value | 128", limits.MAX_DEPTH == 128),
        ("a path | 4,096 characters", limits.MAX_PATH_CHARS == 4096),
        ("entries | 4,000,000", limits.MAX_ENTRIES == 4_000_000),
        ("dimensions | 64", limits.MAX_NDIM == 64),
        ("zero dimensions left out | 2^50", limits.MAX_TENSOR_BYTES == 2**50),
        ("a chunk | 64 MiB", limits.MAX_CHUNK_BYTES == 64 * 2**20),
        ("ranks | 1,000,000", limits.MAX_RANKS == 1_000_000),
        ("a layout's mesh | 1,000,000", limits.MAX_RANKS == 1_000_000),
        ("times its strided factors | 16,777,216", limits.MAX_SHARES == 16_777_216),
        ("a pack's header | 100,000,000 bytes", limits.MAX_PACK_HEADER_BYTES == 100_000_000),
    ],
)
def test_its_bounds_are_the_codes(row, limit):
    """Each limit stands there with its number."""
    assert row in PAGE
    assert limit
