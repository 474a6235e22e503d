"""Pipelines of torchtitan's parts: the stages of two by two ranks, restored without a pipeline, and back."""

import importlib.util
import os
import re
from pathlib import Path

import pytest

from tests.ranks.processes import torchrun

STAGES = Path(__file__).with_name("stages.py")
ROOT = STAGES.parents[3]
TENSOR = re.compile(r"^tensor (begin|end) (\S+) (\w+)$", re.MULTILINE)

pytestmark = [
    pytest.mark.more,
    pytest.mark.skipif(
        any(importlib.util.find_spec(needed) is None for needed in ("torchtitan", "spmd_types", "tyro")),
        reason="torchtitan is not installed: pip install --no-deps torchtitan==0.3.0, with spmd_types and tyro",
    ),
]


def launch(folder, ranks, **given):
    """One launch, and every tensor's digests, by when and name: one digest each, whichever rank told it."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    ended = torchrun(str(STAGES), ranks, FOLDER=str(folder), PYTHONPATH=path, **given)
    assert ended.code == 0, ended.err
    told = {"begin": {}, "end": {}}
    for when, name, digest in TENSOR.findall(ended.out):
        assert told[when].setdefault(name, digest) == digest, name
    return told, {int(step) for step in re.findall(r"^begins (\d+)$", ended.out, re.MULTILINE)}


def test_a_pipeline_restores_without_one_and_back(tmp_path):
    """Two stages (the first of two model parts) on four ranks, then the whole on two, then stages again."""
    first, began = launch(tmp_path, 4, STAGES="2", STEPS="4")
    assert began == {0}
    whole, began = launch(tmp_path, 2, STAGES="1", STEPS="6")
    assert began == {4}
    assert whole["begin"] == first["end"]
    assert whole["end"] != whole["begin"]
    stages, began = launch(tmp_path, 4, STAGES="2", STEPS="7")
    assert began == {6}
    assert stages["begin"] == whole["end"]


def test_several_ranks_begin_from_a_folder_of_torchtitans_own(tmp_path):
    """What torchtitan's own manager saved of a pipeline goes on bit for bit, and is the run's first checkpoint."""
    theirs, _ = launch(tmp_path / "theirs", 4, STAGES="2", STEPS="4", THEIRS="1")
    folder = str(tmp_path / "theirs" / "checkpoint" / "step-4")
    ours, began = launch(tmp_path / "ours", 2, STAGES="1", STEPS="5", INITIAL=folder)
    assert began == {4}
    assert ours["begin"] == theirs["end"]
    again, began = launch(tmp_path / "ours", 2, STAGES="1", STEPS="6", INITIAL=folder)
    assert began == {5}
    assert again["begin"] == ours["end"]


def test_several_ranks_begin_from_a_seed(tmp_path):
    """One process makes the seed; every rank begins with its parameters, and optimizers that are new."""
    launch(tmp_path, 1, STAGES="1", STEPS="1", SEED="1")
    first, began = launch(tmp_path, 2, STAGES="1", STEPS="2")
    assert began == {0}
    assert set(first["begin"]) == {
        f"layers.{number}.{what}" for number in range(3) for what in ("weight", "bias")
    }
