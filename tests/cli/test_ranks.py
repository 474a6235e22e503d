"""Commands on a checkpoint that several ranks saved."""

import shutil
from pathlib import Path

from tests.cli.worlds import ask

STORE = Path(__file__).parents[1] / "golden" / "ranks-v1"


def test_show_says_how_a_tensor_lies_on_the_ranks(capsys):
    """The mesh, its names and the placements, for people and in the document; a replica says nothing of it."""
    shown = ask(capsys, "show", "--store", STORE, "wide").out
    assert "world       3 ranks" in shown
    assert "float32[7, 2] on dp=3 (shard:0)" in shown
    leaves = {
        one["path"]: one for one in ask(capsys, "show", "--store", STORE, "wide", "--json").json["leaves"]
    }
    assert leaves["model/rows"]["layout"] == {"mesh": [3], "names": ["dp"], "placements": ["shard:0"]}
    assert "layout" not in leaves["model/bias"]


def test_verify_reads_what_all_ranks_wrote(capsys, tmp_path):
    """Every byte of three ranks' packs, those of compact indexes included. It leaves a mark: so of a copy."""
    store = shutil.copytree(STORE, tmp_path / "store")
    answer = ask(capsys, "verify", "--store", store, "wide", "--json")
    assert answer.code == 0
    assert answer.json["bytes"] == 324
