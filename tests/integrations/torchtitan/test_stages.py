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

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(needed) is None for needed in ("torchtitan", "spmd_types", "tyro")),
    reason="torchtitan is not installed: pip install --no-deps torchtitan==0.3.0, with spmd_types and tyro",
)


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
    """Two stages (the first of two model parts) on four ranks, then the whole on two ranks, then stages on two."""
    first, began = launch(tmp_path, 4, STAGES="2", STEPS="4")
    assert began == {0}
    whole, began = launch(tmp_path, 2, STAGES="1", STEPS="6")
    assert began == {4}
    assert whole["begin"] == first["end"]
    assert whole["end"] != whole["begin"]
