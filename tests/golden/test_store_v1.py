"""A store that was written once by version 1 of the format is read for ever; its broken copies never are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

import everstep as es
from everstep.errors import IntegrityError
from everstep.format.values import EnumValue
from everstep.repository.catalogue import checkpoints, resolve
from everstep.repository.opening import open_repository
from everstep.repository.verify import verify
from everstep.store.local import LocalStore
from tests.golden.states import state_at

HERE = Path(__file__).parent
STORE = HERE / "store-v1"
BROKEN = json.loads((HERE / "broken-v1.json").read_text())


def content(folder):
    """Every file with its bytes."""
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def same_bits(found, expected):
    """Equal in type, shape and bits."""
    if isinstance(expected, torch.Tensor):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        return bytes(found.contiguous().flatten().view(torch.uint8)) == bytes(
            expected.contiguous().flatten().view(torch.uint8)
        )
    return found.dtype == expected.dtype and found.tobytes() == expected.tobytes()


@pytest.mark.parametrize(("run", "step"), [("first", 1), ("first", 2), ("second", 2)])
def test_a_checkpoint_of_version_1_is_read(run, step):
    """Tensors to the bit, ties as ties, values with their types; nothing is written."""
    before = content(STORE)
    found, expected = es.load(str(STORE), run, step=step), state_at(step)
    for name in ("half", "eighth", "flag", "scalar", "empty"):
        assert same_bits(found[name], expected[name])
    for name in ("weight", "tied", "turned", "part"):
        assert same_bits(found["model"][name], expected["model"][name])
    assert found["model"]["tied"] is found["model"]["weight"]
    assert found["model"]["turned"].data_ptr() == found["model"]["weight"].data_ptr()
    for name, array in expected["numpy"].items():
        assert same_bits(found["numpy"][name], array)
    assert found["numpy"]["half"].dtype == ml_dtypes.bfloat16
    assert isinstance(found["numpy"]["scalar"], np.float32)
    assert found["step"] == step
    assert repr(found["values"]) == repr(expected["values"])
    fields = found["more"].pop("a/b~c")
    assert fields._asdict() == {"rate": 0.1, "decay": (0.9, 0.99)}
    assert found["more"].pop("phase") == EnumValue("Phase", "WARM", "warm")
    assert found["more"].items() <= expected["more"].items()
    assert len(found["more"]) == len(expected["more"]) - 2
    assert found["long"] == expected["long"]
    assert found["rank"] == {0: {"position": step}}
    assert content(STORE) == before


def test_its_catalogue_is_read():
    """Runs, metrics, tags and lineage."""
    repo = open_repository(LocalStore(STORE), create=False)
    newer, older = checkpoints(repo, "first")
    assert (newer.step, older.step) == (2, 1)
    assert older.metrics == {"loss": 0.5}
    assert repr(newer.metrics) == "{'loss': nan}"
    assert newer.stored_bytes < older.stored_bytes  # what did not change is in the first pack
    assert resolve(repo, "tag:best").save == newer.save
    (forked,) = checkpoints(repo, "second")
    assert forked.forked_from == newer.parent
    assert [verify(repo, found) for found in (newer, older, forked)] == [[], [], []]


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_copy_is_refused_by_its_code(name, tmp_path):
    """Each damage ends in its own kind of error, and `verify` or the list sees it too."""
    case = BROKEN[name]
    folder = tmp_path / "store"
    shutil.copytree(STORE, folder)
    for key, text in case.get("write", {}).items():
        (folder / key).write_text(text)
    for key in case.get("remove", ()):
        (folder / key).unlink()
    if "flip" in case:
        key, at = case["flip"]
        body = bytearray((folder / key).read_bytes())
        body[at] ^= 1
        (folder / key).write_bytes(body)
    if "cut" in case:
        key, size = case["cut"]
        body = (folder / key).read_bytes()
        (folder / key).write_bytes(body[:size])
    with pytest.raises(IntegrityError) as caught:
        es.load(str(folder), "first", on_corrupt="fail")
    assert caught.value.code == case["code"]
