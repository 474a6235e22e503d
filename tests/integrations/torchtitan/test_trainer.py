"""torchtitan's own trainer on everstep: trained on four ranks, stopped, and resumed on two."""

import importlib.util
import re
from pathlib import Path

import pytest

import everstep as es
from tests.ranks.processes import torchrun

pytestmark = pytest.mark.more

TRAINER = str(Path(__file__).with_name("trainer.py"))
SAID = re.compile(r"^(loaded|ended) (\d+) (\d+) (\w+)$", re.MULTILINE)
EXITS = re.compile(r"rank (\d+) exits (\d+)")


@pytest.fixture(scope="module", autouse=True)
def _titan():
    """torchtitan, with all that its trainer imports."""
    for needed in ("torchtitan", "triton", "datasets", "spmd_types", "tyro"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"torchtitan's trainer needs {needed}, which make test-more installs")


class Launch:
    """One launch of the trainer: what it said, step, position of the data and digest, and how its ranks ended."""

    def __init__(self, folder, ranks, *, steps, **environment):
        ended = torchrun(TRAINER, ranks, timeout_s=240, FOLDER=str(folder), STEPS=str(steps), **environment)
        said = {word: (int(step), int(at), digest) for word, step, at, digest in SAID.findall(ended.out)}
        self.code, self.err = ended.code, ended.err
        self.loaded, self.ended = said.get("loaded"), said.get("ended")
        self.exits = {int(rank): int(code) for rank, code in EXITS.findall(ended.out)}


def test_stopped_on_four_ranks_resumed_on_two(tmp_path):
    """SIGTERM in one rank's third step: all save that step and exit 75; two ranks resume it bit for bit."""
    first = Launch(tmp_path, 4, steps=50, STOP="2:3")
    assert first.exits == dict.fromkeys(range(4), 75), first.err
    step, _, digest = first.ended
    assert 3 <= step < 50
    second = Launch(tmp_path, 2, steps=step + 2, EXCLUDE="dataloader")
    assert (second.code, second.exits) == (0, {0: 0, 1: 0}), second.err
    assert (second.loaded[0], second.loaded[2]) == (step, digest)
    assert second.ended[0] == step + 2
    assert second.ended[2] != digest
    with es.Checkpointer(str(tmp_path / "checkpoint"), "torchtitan") as run:
        kept = [checkpoint.step for checkpoint in run.checkpoints()]
    assert kept[0] == step + 2
    assert step in kept


def test_the_data_goes_on_where_the_parallelism_changes_and_the_data_ranks_do_not(tmp_path):
    """Two by two ranks (data by tensor parallel) to two data-parallel ranks: the loader's position comes along."""
    first = Launch(tmp_path, 4, steps=5, TP="2")
    assert first.code == 0, first.err
    second = Launch(tmp_path, 2, steps=6)
    assert second.code == 0, second.err
    assert second.loaded == first.ended
    assert second.ended[1] > first.ended[1]


def test_data_of_other_data_ranks_is_refused(tmp_path):
    """Four data-parallel ranks' positions are not those of two: refused, and the message says what to set."""
    assert Launch(tmp_path, 4, steps=1).code == 0
    second = Launch(tmp_path, 2, steps=2)
    assert second.code != 0
    assert second.loaded is None
    assert "is of data-parallel rank 0 of 4, and this is rank 0 of 2" in second.err
    assert "exclude_from_loading" in second.err
