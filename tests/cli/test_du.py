"""``everstep du``: a line for each run, and totals that are what the folder has."""

from pathlib import Path

import everstep as es
from everstep.repository.catalogue import checkpoints
from everstep.repository.opening import open_repository
from everstep.repository.tombs import bury
from everstep.store.opening import open_store
from tests.cli.worlds import ask, state_at, trained


def on_disk(folder: Path) -> int:
    """The bytes of all packs, as the file system has them."""
    return sum(path.stat().st_size for path in folder.glob("packs/*/*/*.safetensors"))


def test_totals_are_what_the_folder_has(tmp_path, capsys):
    """Stored, waiting, under way and garbage add up to the packs' files, with a fork and a pruned checkpoint."""
    store = trained(tmp_path / "store")
    assert ask(capsys, "fork", "digits@20", "child", "--store", store).code == 0
    with es.Checkpointer(store, "child") as ckpt:
        ckpt.save(40, state_at(40)).wait()
    repo = open_repository(open_store(store), create=False)
    bury(repo, "digits", checkpoints(repo, "digits")[1].save, why="test")
    bury(repo, "digits", checkpoints(repo, "digits")[0].save, why="test")
    told = ask(capsys, "du", "--store", store, "--deep", "--prices", "azure-hot", "--json")
    assert told.code == 0
    total = told.json["total"]
    assert total["bytes"] == on_disk(tmp_path / "store")
    parts = ("stored_bytes", "waiting_bytes", "under_way_bytes", "garbage_bytes")
    assert sum(total[part] for part in parts) == total["bytes"]
    assert total["waiting_bytes"] > 0
    assert total["per_month"] > 0
    rows = {one["run"]: one for one in told.json["runs"]}
    assert (rows["digits"]["checkpoints"], rows["child"]["checkpoints"]) == (1, 2)
    assert rows["child"]["shared_bytes"] == rows["digits"]["shared_bytes"] > 0
    assert told.json["prices"]["name"] == "azure-hot"
    assert told.json["missing"] == told.json["damage"] == []


def test_people_read_a_table_and_what_to_do(tmp_path, capsys):
    """One run alone has its own line and no total; what is missing is named."""
    store = trained(tmp_path / "store", run_name="a")
    trained(tmp_path / "store", run_name="b", steps=(1,))
    told = ask(capsys, "du", "--store", store)
    assert [line.split()[0] for line in told.out.splitlines()] == ["RUN", "a", "b", "total", "4"]
    assert told.err == ""
    one = ask(capsys, "du", "b", "--store", store)
    assert [line.split()[0] for line in one.out.splitlines()] == ["RUN", "b"]
    gone = next((tmp_path / "store").glob("packs/*/s0000000000000001-*/*.safetensors"))
    gone.unlink()
    told = ask(capsys, "du", "--store", store)
    assert "1 pack that checkpoints need is missing" in told.err
    assert "everstep verify" in told.err


def test_a_run_that_is_not_there(tmp_path, capsys):
    """The error names runs that are near."""
    told = ask(capsys, "du", "digit", "--store", trained(tmp_path / "store"))
    assert told.code == 3
    assert "did you mean digits?" in told.err
