"""A store that three ranks wrote by version 1 of the format is read for ever, on one machine and by the page's reader."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import numpy as np
import pytest

import everstep as es
from everstep.errors import CorruptObject, MissingObject
from everstep.format.entries import Tensor
from everstep.repository.catalogue import newest
from everstep.repository.opening import open_repository
from everstep.repository.reading import read_indexes, read_manifest
from everstep.repository.verify import verify
from everstep.store.local import LocalStore
from tests.golden.make_ranks import numbers, tensors

HERE = Path(__file__).parent
STORE = HERE / "ranks-v1"
LEAVES = {one.path: one.shape for rank in range(3) for one in tensors(rank)}


def test_every_leaf_is_read():
    """Sharded in several ways, replicated, by rank and by stage: to the bit, ties as ties."""
    found = es.load(str(STORE), "wide")
    assert found["model"]["tied"] is found["model"]["rows"]
    assert found["step"] == 5
    for path, shape in LEAVES.items():
        part, *names = path.split("/")
        value = found[part]
        for name in names:
            value = value[int(name) if part == "loader" and name.isdigit() else name]
        np.testing.assert_array_equal(value.numpy(), numbers(path, shape))
    assert [found["loader"][rank]["position"] for rank in range(3)] == [100, 101, 102]


def test_the_pages_reader_reads_it_alike():
    """It knows nothing of everstep, and holds every box to its layout."""
    spec = importlib.util.spec_from_file_location("reader", HERE.parents[1] / "docs" / "reader.py")
    reader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reader)
    found = reader.read(STORE, "wide")
    for path, shape in LEAVES.items():
        np.testing.assert_array_equal(found[path], numbers(path, shape))
    assert found["loader/1/position"] == 101


def test_its_indexes_are_compact_but_the_first():
    """What all ranks have alike stands in rank 0's and in the manifest; every chunk verifies."""
    repo = open_repository(LocalStore(STORE), create=False)
    made = newest(repo, "wide")
    assert [index.compact for index in read_indexes(repo, made)] == [False, True, True]
    entries = {entry.path: entry for entry in read_manifest(repo, made).entries if isinstance(entry, Tensor)}
    assert {path: entry.shape for path, entry in entries.items()} == LEAVES
    assert entries["stages/table"].layout.strides == (2,)  # that of the lowest rank
    assert verify(repo, made) == []


@pytest.mark.parametrize("rank", range(3))
@pytest.mark.parametrize(("damage", "error"), [("remove", MissingObject), ("flip", CorruptObject)])
def test_without_an_index_it_is_refused(rank, damage, error, tmp_path):
    """A missing or damaged index of any rank is named; nothing is made up in its place."""
    folder = tmp_path / "store"
    shutil.copytree(STORE, folder)
    (index,) = folder.rglob(f"rank-{rank:07d}.*.json")
    body = bytearray(index.read_bytes())
    body[len(body) // 2] ^= 1
    index.unlink()
    if damage == "flip":
        index.write_bytes(body)
    with pytest.raises(error, match=f"rank-{rank:07d}"):
        es.load(str(folder), "wide", on_corrupt="fail")
