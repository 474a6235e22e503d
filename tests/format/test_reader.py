"""The stand-alone reader of the documentation reads what everstep wrote."""

from __future__ import annotations

import importlib.util
import json
import math
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import everstep as es
from everstep.format.layouts import make_layout, parts
from everstep.repository.catalogue import newest
from everstep.repository.opening import open_repository
from everstep.repository.tombs import bury
from everstep.repository.undelete import undelete
from everstep.store.local import LocalStore
from tests.repository.rank_worlds import array, put_ranks
from tests.repository.worlds import started

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def reader():
    """The page's reader, loaded as a program of its own."""
    spec = importlib.util.spec_from_file_location("reader", ROOT / "docs" / "reader.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def a_state():
    """Arrays of many kinds, ties, views and plain values."""
    torch.manual_seed(7)
    base = torch.randn(6, 4)
    return {
        "weight": base,
        "tied": base,
        "turned": base.T,
        "part": torch.arange(20.0)[3:9:2],
        "one": base[2, 3],
        "half": torch.randn(3).bfloat16(),
        "flags": np.array([True, False]),
        "complex": np.array([1 + 2j]),
        "empty": np.zeros((0, 3), np.int64),
        "scalar": torch.tensor(2.5),
        "big": np.arange(2**20 + 1, dtype="<f8"),
        "text": b"x" * 5000,
        "step": 12,
        "nested": {"lr": [0.1, (1, 2**70)], 3: float("inf")},
    }


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A real store with two checkpoints of one run, the second with chunks in the first one's packs."""
    folder = tmp_path_factory.mktemp("stand-alone")
    state = a_state()
    with es.Checkpointer(str(folder), "r") as ckpt:
        ckpt.save(1, state).wait()
        state["step"] = 13
        state["weight"].add_(1)
        ckpt.save(2, state).wait()
    return folder, state


def test_it_imports_nothing_of_everstep():
    """The standard library, NumPy and blake3 are all it needs."""
    text = (ROOT / "docs" / "reader.py").read_text()
    imports = [line for line in text.splitlines() if line.startswith(("import ", "from "))]
    assert not [line for line in imports if "everstep" in line]


def test_it_reads_every_leaf_of_the_newest_checkpoint(reader, store):
    """To the bit."""
    folder, state = store
    found = reader.read(folder, "r")
    for name in ("weight", "turned", "one", "part", "scalar"):
        np.testing.assert_array_equal(found[name], state[name].numpy())
    for name in ("flags", "complex", "empty", "big"):
        np.testing.assert_array_equal(found[name], state[name])
        assert found[name].dtype == state[name].dtype
    np.testing.assert_array_equal(found["tied"], found["weight"])
    assert found["half"].tobytes() == state["half"].view(torch.uint8).numpy().tobytes()
    assert found["text"].tobytes() == state["text"]
    assert found["step"] == 13
    assert found["nested/lr"] == [0.1, (1, 2**70)]
    assert found["nested/3"] == float("inf")


def test_it_passes_over_what_is_pruned_until_it_is_undeleted(reader, store, tmp_path):
    """A tomb hides a checkpoint, its undelete shows it again, and the next tomb hides it once more."""
    folder = tmp_path / "store"
    shutil.copytree(store[0], folder)
    repo = open_repository(LocalStore(folder), create=False)
    last = newest(repo, "r")
    for tomb in range(3):
        assert reader.read(folder, "r")["step"] == 13
        assert bury(repo, "r", last.save, why="a test").number == tomb
        assert reader.read(folder, "r")["step"] == 12
        undelete(repo, "r", last.save)


def test_it_finds_any_damage(reader, store):
    """A flipped byte in each object that it reads."""
    folder, _ = store
    damaged = 0
    for original in sorted(folder.rglob("*")):
        kind = original.relative_to(folder).parts[0]
        if not original.is_file() or kind not in ("everstep.json", "runs", "packs"):
            continue
        body = bytearray(original.read_bytes())
        at = len(body) - 1 if kind == "packs" else 20
        body[at] ^= 4
        original.write_bytes(body)
        damaged += 1
        if read_by(original, folder):
            with pytest.raises(ValueError, match="damaged"):
                reader.read(folder, "r")
        else:
            reader.read(folder, "r")
        body[at] ^= 4
        original.write_bytes(body)
    assert damaged > 8


def read_by(target, folder):
    """Whether the newest checkpoint needs an object: plans, attempts and what is older it does not."""
    if "attempts" in target.parts or "plans" in target.parts:
        return False
    older = sorted((folder / "runs" / "r" / "commits").iterdir())[1].name.split(".")[1]
    return "packs" in target.parts or older not in str(target)


@st.composite
def layouts(draw):
    """A layout on a mesh of one to three dimensions, and the shape of a tensor."""
    mesh = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    shape = tuple(draw(st.lists(st.integers(0, 9), min_size=1, max_size=3)))
    dims = st.integers(0, len(shape) - 1)
    placement = st.one_of(
        st.just("replicate"),
        dims.map("shard:{}".format),
        st.tuples(dims, st.integers(1, 3)).map(lambda cut: f"strided:{cut[0]}:{cut[1]}"),
    )
    placements = draw(st.lists(placement, min_size=len(mesh), max_size=len(mesh)))
    ranks = draw(st.permutations(range(math.prod(mesh) + 2)))[: math.prod(mesh)]
    ordered = draw(st.booleans())
    return make_layout(shape=mesh, ranks=sorted(ranks) if ordered else ranks, placements=placements), shape


@given(layouts())
def test_its_arithmetic_of_layouts_is_the_codes(reader, found):
    """The page alone leads to the same boxes for every rank."""
    layout, shape = found
    written = json.loads(msgspec.json.encode(layout))
    for rank in range(math.prod(layout.shape) + 2):
        boxes = {(part.box.offsets, part.box.sizes) for part in parts(layout, shape, rank)}
        assert reader.boxes(written, list(shape), rank) == boxes


def test_it_reads_what_several_ranks_wrote(reader, tmp_path):
    """Compact indexes, sharded tensors, parts by rank and stages: every leaf, to the bit."""
    repo, attempt = started(LocalStore(tmp_path), ranks=4)
    put_ranks(repo, attempt, 7, mesh=(2, 2))
    found = reader.read(tmp_path, "run")
    assert found.pop("step") == 7
    paths = [
        "model/w",
        "model/b",
        "part/layers/table",
        *(f"{a}/{r}" for a in ("loader", "part/layers") for r in range(4)),
    ]
    np.testing.assert_array_equal(found.pop("model/tied"), found["model/w"])
    assert sorted(found) == sorted(paths)
    for path, leaf in found.items():
        np.testing.assert_array_equal(leaf, array(path, leaf.shape))


def test_it_finds_a_box_that_is_missing_or_of_another_rank(reader):
    """Neither zeros nor another rank's numbers are taken for what was written."""
    layout = {"mesh": [2], "placements": ["shard:0"]}
    entry = {"path": "w", "shape": [4], "layout": layout}
    reader.check_box(entry, {"path": "w", "offsets": [2], "sizes": [2]}, 1)
    reader.check_box(entry, {"path": "w", "offsets": [0], "sizes": [4]}, 2)
    with pytest.raises(ValueError, match="not its own"):
        reader.check_box(entry, {"path": "w", "offsets": [0], "sizes": [2]}, 1)
