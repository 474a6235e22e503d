"""ls, show, diff, verify, fork, tag and cp on real stores."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import everstep as es
from tests.cli.worlds import ask, state_at, trained


@pytest.fixture
def store(tmp_path):
    """A store with the run digits, at steps 10, 20 and 30."""
    return trained(tmp_path / "store")


def flip(folder, pattern="packs/*/*/*.safetensors", *, newest=False):
    """Damage one byte in the middle of one object's data; gives its key."""
    paths = sorted(Path(folder).glob(pattern), key=lambda path: path.stat().st_mtime_ns)
    path = paths[-1 if newest else 0]
    path.chmod(0o644)
    body = bytearray(path.read_bytes())
    body[-10] ^= 1
    path.write_bytes(body)
    return str(path.relative_to(folder))


class TestLs:
    def test_without_a_run_every_run_stands_with_its_newest_checkpoint(self, store, capsys):
        """One line for each run."""
        trained(store, "other", steps=(5,))
        answer = ask(capsys, "ls", "--store", store)
        lines = answer.out.splitlines()
        assert [line.split()[:2] for line in lines] == [["RUN", "STEP"], ["digits", "30"], ["other", "5"]]
        found = ask(capsys, "ls", "--store", store, "--json").json
        assert [(one["run"], one["step"]) for one in found["checkpoints"]] == [("digits", 30), ("other", 5)]
        assert [one["run"] for one in found["runs"]] == ["digits", "other"]

    @pytest.mark.parametrize("words", [["digits"], ["--run", "digits"]])
    def test_with_a_run_its_checkpoints_stand_newest_first(self, words, store, capsys):
        """Each has run, step, attempt, created, bytes, stored_bytes, metrics and tags."""
        ask(capsys, "tag", "best", "digits@20", "--store", store)
        found = ask(capsys, "ls", *words, "--store", store, "--json").json
        assert [one["step"] for one in found["checkpoints"]] == [30, 20, 10]
        one = found["checkpoints"][1]
        assert one["tags"] == ["best"]
        assert one["metrics"] == {"loss": 0.05}
        assert one["attempt"] == 1
        assert one["bytes"] == 256 * 16 * 4 + 16 * 4 * 4 + 4 * 4
        assert one["stored_bytes"] < one["bytes"]
        assert "best" in ask(capsys, "ls", *words, "--store", store).out

    def test_a_store_without_runs_says_so(self, tmp_path, capsys):
        """An empty table would look like an error."""
        trained(tmp_path / "s", "r", steps=())
        answer = ask(capsys, "ls", "r", "--store", tmp_path / "s")
        assert (answer.code, answer.out) == (0, "")
        assert "no checkpoint yet" in answer.err

    def test_metrics_that_json_lacks_are_words(self, store, capsys):
        """NaN and infinities are strings, and the document is strict JSON."""
        with es.Checkpointer(store, "wild") as ckpt:
            ckpt.save(1, {"a": 1}, metrics={"nan": math.nan, "inf": -math.inf}).wait()
        found = ask(capsys, "ls", "wild", "--store", store, "--json").json
        assert found["checkpoints"][0]["metrics"] == {"nan": "NaN", "inf": "-Infinity"}


class TestShow:
    def test_the_state_is_a_tree_with_sizes_and_types(self, store, capsys):
        """Folded at a depth; in full with --all."""
        out = ask(capsys, "show", "digits", "--store", store).out
        assert "digits@30" in out
        assert "embed.weight" in out
        assert "float32[256, 16]" in out
        assert "loss: 0.033" in out
        assert "batch: 32" in out
        folded = ask(capsys, "show", "digits", "--store", store, "--depth", "1").out
        assert "embed.weight" not in folded
        assert "model ..." in folded
        assert "3 leaves" in folded

    def test_a_list_of_thousands_is_cut_short(self, store, capsys):
        """A loss history does not fill the screen; --all shows it."""
        with es.Checkpointer(store, "long") as ckpt:
            ckpt.save(1, {"history": [np.float32(n) for n in range(1000)], "last": 1}).wait()
        out = ask(capsys, "show", "long", "--store", store).out
        assert "... 980 more" in out
        assert "last" in out
        assert len(ask(capsys, "show", "long", "--store", store, "--all").out.splitlines()) > 1000

    def test_the_architecture_is_shown(self, store, capsys):
        """How to build the model again, and with what code."""
        model = torch.nn.Linear(3, 2)
        architecture = es.Architecture.of(model, factory="torch.nn:Linear", args=(3, 2))
        with es.Checkpointer(store, "net", architecture=architecture) as ckpt:
            ckpt.save(1, {"model": model}).wait()
        assert "torch.nn:Linear" in ask(capsys, "show", "net", "--store", store).out
        found = ask(capsys, "show", "net", "--store", store, "--json").json["architecture"]
        assert "torch.nn:Linear" in str(found)

    @pytest.mark.parametrize("name", ["digits@20", "tag:best", "digits@latest", "digits"])
    def test_a_checkpoint_has_several_names(self, name, store, capsys):
        """RUN, RUN@STEP, RUN@latest and tag:NAME."""
        ask(capsys, "tag", "best", "digits@20", "--store", store)
        shown = ask(capsys, "show", name, "--store", store, "--json").json["checkpoint"]
        assert shown["step"] == (30 if name in {"digits", "digits@latest"} else 20)

    def test_leaves_have_paths_types_and_values(self, store, capsys):
        """What a script needs to know of a state."""
        shown = ask(capsys, "show", "digits@20", "--store", store, "--json").json
        leaves = {leaf["path"]: leaf for leaf in shown["leaves"]}
        assert leaves["model/head.bias"]["dtype"] == "float32"
        assert leaves["model/head.bias"]["shape"] == [4]
        assert leaves["model/head.bias"]["bytes"] == 16
        assert leaves["epoch"]["value"] == 2
        assert shown["config"] == {"batch": 32}
        assert [one["attempt"] for one in shown["lineage"]["attempts"]] == [1]

    def test_lineage_names_the_parent_and_whose_bytes_are_shared(self, store, capsys):
        """A fork knows where it came from, and a later save whose packs it uses."""
        shared = ask(capsys, "show", "digits@20", "--store", store, "--json").json["lineage"]
        assert len(shared["shares_bytes_with"]) == 1
        ask(capsys, "fork", "digits@20", "second", "--store", store)
        lineage = ask(capsys, "show", "second", "--store", store, "--json").json["lineage"]
        assert lineage["forked_from"]["run"] == "digits"
        assert "forked from digits" in ask(capsys, "show", "second", "--store", store).out


class TestDiff:
    def test_equal_checkpoints_exit_0_and_nothing_is_read(self, store, capsys):
        """Digests prove it."""
        answer = ask(capsys, "diff", "digits@20", "digits@20", "--store", store, "--json")
        assert answer.code == 0
        assert answer.json["equal"] is True
        assert answer.json["bytes_read"] == 0
        assert answer.json["leaves"] == 6

    def test_what_changed_is_told_leaf_by_leaf_and_exits_10(self, store, capsys):
        """Relative change, largest change, NaN, bytes; the embedding is equal and not read."""
        answer = ask(capsys, "diff", "digits@20", "digits@30", "--store", store, "--json")
        assert answer.code == 10
        found = {one["path"]: one for one in answer.json["differences"]}
        assert set(found) == {"model/head.weight", "model/head.bias", "epoch", "lr"}
        weight = found["model/head.weight"]
        a, b = (state_at(step)["model"]["head.weight"].astype(np.float64) for step in (20, 30))
        assert weight["relative"] == pytest.approx(np.linalg.norm(b - a) / np.linalg.norm(a), rel=1e-12)
        assert weight["max_abs"] == pytest.approx(np.abs(b - a).max(), rel=1e-12)
        assert (found["model/head.bias"]["nan_a"], found["model/head.bias"]["nan_b"]) == (0, 4)
        assert found["epoch"]["relative"] == 0.5
        assert answer.json["bytes_read"] == 2 * (16 * 4 * 4 + 16)

    def test_the_table_is_for_people(self, store, capsys):
        """One line for each leaf, and a summary on stderr."""
        answer = ask(capsys, "diff", "digits@10", "digits@20", "--store", store)
        assert "model/head.weight" in answer.out
        assert "1 -> 2" in answer.out
        assert "4 places" in answer.err

    def test_a_selection_looks_at_nothing_else(self, store, capsys):
        """--select model leaves epoch out; a shell pattern is matched with the whole path."""
        words = ["diff", "digits@10", "digits@20", "--store", store, "--json"]
        paths = [one["path"] for one in ask(capsys, *words, "--select", "model").json["differences"]]
        assert paths == ["model/head.weight", "model/head.bias"]
        paths = [one["path"] for one in ask(capsys, *words, "--select", "*bias").json["differences"]]
        assert paths == ["model/head.bias"]
        assert ask(capsys, *words, "--select", "model/embed.weight").code == 0

    def test_the_other_side_may_be_in_another_store(self, store, tmp_path, capsys):
        """A copy is equal to the bit."""
        ask(capsys, "cp", "digits@30", "--to", tmp_path / "b", "--store", store)
        words = ["diff", "digits@30", "digits@30", "--store", store, "--store-b", tmp_path / "b"]
        answer = ask(capsys, *words)
        assert answer.code == 0, answer.err
        assert "equal to the bit in 6 leaves" in answer.out


class TestVerify:
    def test_a_whole_store_verifies(self, store, capsys):
        """Every checkpoint of every run."""
        trained(store, "other", steps=(5,))
        answer = ask(capsys, "verify", "--store", store, "--json")
        assert answer.code == 0
        assert [(one["run"], one["step"]) for one in answer.json["checkpoints"]] == [
            ("digits", 30),
            ("digits", 20),
            ("digits", 10),
            ("other", 5),
        ]
        assert "every byte" in ask(capsys, "verify", "--store", store).out

    def test_damage_names_each_leaf_and_exits_10(self, store, capsys):
        """A flipped bit in a pack that three checkpoints share is found in each."""
        key = flip(store)
        answer = ask(capsys, "verify", "digits", "--store", store, "--json")
        assert answer.code == 10
        damage = answer.json["damage"]
        assert {one["key"] for one in damage} == {key}
        assert damage[0]["leaf"].startswith("model/")
        assert damage[0]["offset"] > 0
        words = ask(capsys, "verify", "digits", "--store", store)
        assert damage[0]["leaf"] in words.out

    def test_a_missing_pack_lists_every_leaf_in_it(self, store, capsys):
        """Fault 23."""
        first = min(Path(store).glob("packs/*/*/*"), key=lambda path: path.stat().st_mtime_ns)
        first.unlink()
        damage = ask(capsys, "verify", "digits@10", "--store", store, "--json").json["damage"]
        assert {"model/embed.weight", "model/head.weight", "model/head.bias"} <= {
            one["leaf"] for one in damage
        }

    @pytest.mark.parametrize(
        "pattern", ["*/digits/commits/*", "*/digits/saves/*/manifest*", "*/digits/saves/*/rank*"]
    )
    def test_a_damaged_record_is_a_finding_too(self, pattern, store, capsys):
        """Not only packs: the other checkpoints are still read."""
        flip(store, pattern)
        answer = ask(capsys, "verify", "digits", "--store", store, "--json")
        assert answer.code == 10
        assert len(answer.json["damage"]) >= 1
        assert any(one["key"].startswith("runs/digits/") for one in answer.json["damage"])

    def test_one_checkpoint_alone_is_read_alone(self, store, capsys):
        """RUN@STEP reads no other."""
        found = ask(capsys, "verify", "digits@10", "--store", store, "--json").json
        assert [one["step"] for one in found["checkpoints"]] == [10]


class TestForkAndTag:
    def test_a_fork_begins_at_the_step_and_shares_all_bytes(self, store, capsys):
        """No byte is stored again, and the state is the parent's."""
        before = sum(path.stat().st_size for path in Path(store).glob("packs/**/*") if path.is_file())
        answer = ask(capsys, "fork", "digits@20", "second", "--store", store, "--json")
        assert answer.code == 0, answer.err
        assert answer.json["checkpoint"]["step"] == 20
        after = sum(path.stat().st_size for path in Path(store).glob("packs/**/*") if path.is_file())
        assert after == before
        assert ask(capsys, "diff", "digits@20", "second", "--store", store).code == 0

    def test_the_parents_newest_can_be_forked_by_run(self, store, capsys):
        """--run and @STEP name it too."""
        assert ask(capsys, "fork", "@10", "third", "--run", "digits", "--store", store).code == 0
        assert ask(capsys, "show", "third@10", "--store", store).code == 0

    def test_a_tag_is_set_listed_moved_and_removed(self, store, capsys):
        """A name that another checkpoint has is moved with --force only."""
        assert ask(capsys, "tag", "best", "digits@20", "--store", store).code == 0
        assert ask(capsys, "tag", "best", "digits@20", "--store", store).code == 0
        taken = ask(capsys, "tag", "best", "digits@30", "--store", store)
        assert taken.code == 1
        assert taken.err.startswith("error[E-ALREADY-EXISTS]")
        assert ask(capsys, "tag", "best", "digits@30", "--force", "--store", store).code == 0
        listed = ask(capsys, "tag", "--store", store, "--json").json["tags"]
        assert [(one["tag"], one["run"], one["step"]) for one in listed] == [("best", "digits", 30)]
        assert "best" in ask(capsys, "tag", "--store", store).out
        assert ask(capsys, "tag", "best", "--delete", "--store", store).code == 0
        assert ask(capsys, "tag", "--store", store).out == ""
        assert ask(capsys, "tag", "best", "--delete", "--store", store).code == 3

    def test_delete_takes_a_name_and_nothing_else(self, store, capsys):
        """Half a command line deletes nothing."""
        assert ask(capsys, "tag", "--delete", "--store", store).code == 2
        assert ask(capsys, "tag", "best", "digits@20", "--delete", "--store", store).code == 2


class TestCp:
    def test_a_run_is_copied_whole_and_is_equal(self, store, tmp_path, capsys):
        """All its checkpoints, verified."""
        there = tmp_path / "there"
        answer = ask(capsys, "cp", "digits", "--to", there, "--store", store, "--json")
        assert answer.code == 0, answer.err
        assert [one["step"] for one in answer.json["checkpoints"]] == [10, 20, 30]
        assert ask(capsys, "verify", "--store", there).code == 0
        for step in (10, 20, 30):
            name = f"digits@{step}"
            assert ask(capsys, "diff", name, name, "--store", store, "--store-b", there).code == 0

    def test_again_it_copies_nothing(self, store, tmp_path, capsys):
        """What is there already stays as it is: no file of the target changes."""
        there = tmp_path / "there"
        ask(capsys, "cp", "digits", "--to", there, "--store", store)
        before = {path: path.stat().st_mtime_ns for path in there.rglob("*") if path.is_file()}
        assert ask(capsys, "cp", "digits", "--to", there, "--store", store).code == 0
        assert {path: path.stat().st_mtime_ns for path in there.rglob("*") if path.is_file()} == before

    def test_one_checkpoint_under_another_name(self, store, tmp_path, capsys):
        """--as renames the run there."""
        words = ["cp", "digits@20", "--to", tmp_path / "there", "--as", "renamed", "--store", store]
        assert ask(capsys, *words).out == "renamed@20\n"
        assert ask(capsys, "show", "renamed@20", "--store", tmp_path / "there").code == 0

    def test_onto_itself_is_refused(self, store, capsys):
        """The same run of the same store."""
        assert ask(capsys, "cp", "digits", "--to", store, "--store", store).code == 2

    def test_damage_is_not_copied(self, store, tmp_path, capsys):
        """Bytes that are not what was written stop the copy, and nothing is committed there."""
        flip(store)
        answer = ask(capsys, "cp", "digits@10", "--to", tmp_path / "there", "--store", store)
        assert answer.code == 6
        assert answer.err.startswith("error[E-CORRUPT")
        assert ask(capsys, "ls", "digits", "--store", tmp_path / "there").out == ""

    def test_to_a_cloud_and_back(self, store, tmp_path, capsys, monkeypatch, moto_server):
        """The same command; what comes back is equal to the bit."""
        environ = {
            "AWS_ACCESS_KEY_ID": moto_server.access_key,
            "AWS_SECRET_ACCESS_KEY": moto_server.secret_key,
            "AWS_ENDPOINT_URL": moto_server.endpoint,
        }
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        cloud = f"s3://{moto_server.bucket()}/team"
        answer = ask(capsys, "cp", "digits", "--to", cloud, "--store", store)
        assert answer.code == 0, answer.err
        assert len(ask(capsys, "ls", "digits", "--store", cloud, "--json").json["checkpoints"]) == 3
        assert ask(capsys, "verify", "--store", cloud).code == 0
        assert ask(capsys, "cp", "digits@30", "--to", tmp_path / "back", "--store", cloud).code == 0
        words = ["diff", "digits@30", "digits@30", "--store", store, "--store-b", tmp_path / "back"]
        assert ask(capsys, *words).code == 0
