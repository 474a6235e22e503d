"""everstep prune and undelete on real stores: what is shown, asked, deleted, freed and brought back."""

import json
import os
import pty
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import everstep as es
from everstep.repository.attempts import claim
from everstep.repository.opening import open_repository
from everstep.store.opening import open_store
from tests.cli.test_verbs import flip
from tests.cli.worlds import ask

BEST = {100: 5.0, 200: 1.0, 300: 4.0, 400: 3.0, 500: 2.0, 600: 6.0}


def saved(folder, run="digits", steps=tuple(BEST), own=10_000):
    """A run with a checkpoint at each step: one tensor of 160 kB that never changes, one of its own for each."""
    rng = np.random.default_rng(0)
    frozen = rng.standard_normal(20_000)
    with es.Checkpointer(str(folder), run) as ckpt:
        for step in steps:
            state = {"frozen": frozen, "own": rng.standard_normal(own)}
            ckpt.save(step, state, metrics={"val_loss": BEST.get(step, 9.0)}).wait()
    return str(folder)


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A store with the run digits, made once."""
    return saved(tmp_path_factory.mktemp("template") / "store")


@pytest.fixture
def store(template, tmp_path):
    """A store with the run digits, at steps 100 to 600."""
    return str(shutil.copytree(template, tmp_path / "store"))


def launched(store, run, keep):
    """Another launch of the run, with a policy of its own."""
    claim(open_repository(open_store(store), create=False), run, owner="a test", keep=keep)


def files(store):
    """Every object of a local store and its bytes."""
    return {str(p.relative_to(store)): p.stat().st_size for p in Path(store).rglob("*") if p.is_file()}


def steps(store, capsys, run="digits"):
    """The steps that are checkpoints."""
    return [one["step"] for one in ask(capsys, "ls", run, "--store", store, "--json").json["checkpoints"]]


def prune(capsys, store, *words):
    """The command on this store."""
    return ask(capsys, "prune", *words, "--store", store)


class TestPrune:
    def test_what_the_policy_keeps_stays_and_the_rest_goes(self, store, capsys):
        """Each checkpoint stands in the table with its verdict and its reasons."""
        answer = prune(capsys, store, "digits", "--keep", "last 2, best 1 by val_loss", "--yes")
        assert answer.code == 0
        lines = [line.split(maxsplit=7) for line in answer.out.splitlines()]
        assert lines[0] == ["CHECKPOINT", "ATTEMPT", "CREATED", "SIZE", "VERDICT", "REASONS"]
        told = {line[0]: (line[6], line[7]) for line in lines[1:7]}
        assert told["digits@600"] == ("keep", "newest; last 2 (1st)")
        assert told["digits@500"] == ("keep", "last 2 (2nd)")
        assert told["digits@200"] == ("keep", "best 1 by val_loss (1st: 1)")
        assert told["digits@100"] == ("delete", "no rule keeps it")
        assert steps(store, capsys) == [600, 500, 200]

    def test_bytes_go_when_the_grace_is_over(self, store, capsys):
        """At once with --grace 0; what is said to be freed is what the store has less."""
        before = sum(files(store).values())
        planned = prune(capsys, store, "digits", "--keep", "last 1", "--dry-run", "--json").json
        waits = prune(capsys, store, "digits", "--keep", "last 1", "--yes", "--json").json
        assert (waits["deleted"], waits["done"]["bytes"], waits["done"]["waiting"]) == (5, 0, 5)
        now = prune(capsys, store, "digits", "--keep", "last 1", "--yes", "--grace", "0", "--json").json
        lost = before - sum(files(store).values())
        small = 20_000  # tombs, marks and records of what was swept are new
        assert planned["frees_bytes"] == waits["frees_bytes"]
        assert 0 <= now["done"]["bytes"] - planned["frees_bytes"] < 5 * 1000  # beside them five plans go
        assert now["done"]["bytes"] - small < lost <= now["done"]["bytes"]
        assert now["done"]["bytes"] > 4 * 80_000
        assert prune(capsys, store, "digits", "--keep", "last 1", "--yes", "--json").json["deleted"] == 0
        assert ask(capsys, "verify", "--store", store).code == 0

    def test_a_dry_run_changes_nothing(self, store, capsys):
        """The store is the same, object for object; also with a full check, with pins, and with a repack."""
        ask(capsys, "tag", "first", "digits@100", "--store", store)
        Path(store, "readers").mkdir(exist_ok=True)
        before = files(store)
        for words in (["digits", "--keep", "last 1"], ["--keep", "last 1", "--repack"], ["digits@200"]):
            answer = prune(capsys, store, *words, "--dry-run")
            assert answer.code == 0, answer.err
            assert "would delete" in answer.out
        document = prune(capsys, store, "digits", "--keep", "last 1", "--dry-run", "--json").json
        assert (document["dry_run"], document["done"]) == (True, None)
        assert files(store) == before

    def test_the_document_has_reasons_bytes_and_money(self, store, capsys):
        """For scripts."""
        words = ["digits", "--keep", "last 1", "--dry-run", "--prices", "s3-standard", "--json"]
        document = prune(capsys, store, *words).json
        assert document["schema_version"] == 1
        assert (document["kept"], document["deleted"]) == (1, 5)
        (run,) = document["runs"]
        assert (run["run"], run["keep"]) == ("digits", "last 1")
        assert [(one["step"], one["keep"], one["reasons"]) for one in run["checkpoints"][:2]] == [
            (600, True, ["newest", "last 1 (1st)"]),
            (500, False, ["no rule keeps it"]),
        ]
        assert document["prices"]["name"] == "s3-standard"
        assert document["frees_bytes"] > 4 * 80_000
        expected = document["frees_bytes"] / 2**30 * document["prices"]["gb_month"]
        assert document["frees_dollars_a_month"] == pytest.approx(expected)

    def test_a_disk_has_no_money(self, store, capsys):
        """Nothing is made up."""
        document = prune(capsys, store, "digits", "--keep", "last 1", "--dry-run", "--json").json
        assert document["prices"] is None
        assert document["frees_dollars_a_month"] is None
        assert "$" not in prune(capsys, store, "digits", "--keep", "last 1", "--dry-run").out

    def test_a_budget_of_money_needs_prices(self, store, capsys):
        """And with them deletes until the bytes cost so little."""
        words = ["digits", "--keep", "at most $0.00001", "--dry-run"]
        refused = prune(capsys, store, *words)
        assert (refused.code, "--prices" in refused.err) == (2, True)
        document = prune(capsys, store, *words, "--prices", "s3-standard", "--json").json
        kept = [one["step"] for one in document["runs"][0]["checkpoints"] if one["keep"]]
        assert 0 < len(kept) < 6
        assert kept == sorted(BEST, reverse=True)[: len(kept)]

    def test_a_budget_of_bytes_counts_shared_packs_once(self, store, capsys):
        """The frozen tensor is stored once, with the first checkpoint; the others add their own."""
        document = prune(capsys, store, "digits", "--keep", "at most 450kB", "--dry-run", "--json").json
        kept = [one["step"] for one in document["runs"][0]["checkpoints"] if one["keep"]]
        assert kept == [600, 500]  # 240 kB of the first, 80 kB for each

    def test_a_budget_that_cannot_be_met_says_so(self, store, capsys):
        """What is never deleted is kept, and it is told why."""
        answer = prune(capsys, store, "digits", "--keep", "at most 1kB", "--yes")
        assert "cannot be met" in answer.err
        assert steps(store, capsys) == [600]
        assert "cannot be met" in answer.out

    def test_a_checkpoint_is_given_up_by_name(self, store, capsys):
        """Whatever the policy; the others are not looked at."""
        answer = prune(capsys, store, "digits@200", "digits@400", "--yes")
        assert answer.code == 0
        assert steps(store, capsys) == [600, 500, 300, 100]
        assert "digits@500" not in answer.out
        with_policy = prune(capsys, store, "digits", "digits@500", "--keep", "last 3", "--yes")
        assert with_policy.code == 0
        assert steps(store, capsys) == [600, 300]

    @pytest.mark.parametrize(
        ("name", "why"), [("digits@600", "newest"), ("tag:mine", "tagged"), ("digits", "")]
    )
    def test_what_is_protected_is_not_given_up_by_name(self, name, why, store, capsys):
        """The newest, and what is tagged; nothing else goes either."""
        ask(capsys, "tag", "mine", "digits@200", "--store", store)
        before = files(store)
        answer = prune(capsys, store, name, *(["digits@300"] if why else []), "--yes")
        assert answer.code == 2
        assert why in answer.err
        assert files(store).keys() >= before.keys()
        assert steps(store, capsys) == sorted(BEST, reverse=True)

    def test_tagged_and_verified_checkpoints_stay(self, store, capsys):
        """Whatever the policy says."""
        ask(capsys, "tag", "mine", "digits@200", "--store", store)
        assert ask(capsys, "verify", "digits@300", "--store", store).code == 0
        answer = prune(capsys, store, "digits", "--keep", "last 1", "--check", "none", "--yes")
        assert "tagged mine" in answer.out
        assert steps(store, capsys) == [600, 300, 200]

    def test_nothing_is_pruned_when_the_newest_is_damaged(self, store, capsys):
        """Else the last good checkpoint could go. A full check reads every byte."""
        flip(store, newest=True)
        before = files(store)
        answer = prune(capsys, store, "digits", "--keep", "last 1", "--yes")
        assert answer.code == 6
        assert "digits@600" in answer.err
        assert files(store) == before

    def test_the_runs_own_policy_is_the_one_it_was_launched_with(self, tmp_path, capsys):
        """So that a prune from outside does what the training would."""
        store = saved(tmp_path / "s", steps=(100, 200, 300))
        launched(store, "digits", keep="last 2")
        document = prune(capsys, store, "digits", "--dry-run", "--json").json
        assert document["runs"][0]["keep"] == "last 2"
        assert document["deleted"] == 1

    @pytest.mark.parametrize("words", [["digits@200"], ["digits", "--keep", "last 2"]])
    def test_a_damaged_checkpoint_can_be_given_up(self, words, store, capsys):
        """One whose description is gone is in nobody's way; those that stay are whole."""
        (manifest,) = Path(store).glob("runs/digits/saves/*200-*/manifest.*")
        manifest.unlink()
        assert prune(capsys, store, *words, "--dry-run").code == 0
        answer = prune(capsys, store, *words, "--yes", "--grace", "0")
        assert answer.code == 0, answer.err
        assert 200 not in steps(store, capsys)
        assert ask(capsys, "verify", "--store", store).code == 0

    def test_nothing_is_swept_while_one_that_stays_is_damaged(self, store, capsys):
        """It may need what would be deleted; it is named, and can be given up."""
        (manifest,) = Path(store).glob("runs/digits/saves/*200-*/manifest.*")
        manifest.unlink()
        before = files(store)
        document = prune(capsys, store, "digits@100", "--dry-run", "--json").json
        assert document["frees_bytes"] is None
        answer = prune(capsys, store, "digits@100", "--yes", "--grace", "0")
        assert answer.code == 6
        assert "digits@200" in answer.err
        assert before.keys() <= files(store).keys()
        assert prune(capsys, store, "digits@200", "--yes", "--grace", "0").code == 0
        assert ask(capsys, "verify", "--store", store).code == 0

    def test_what_was_given_up_by_name_says_so(self, store, capsys):
        """In the list of what can come back."""
        prune(capsys, store, "digits@200", "--yes")
        assert "asked for" in ask(capsys, "undelete", "digits", "--list", "--store", store).out


class TestWholeStore:
    def test_every_run_goes_by_its_own_policy(self, tmp_path, capsys):
        """A run without one keeps everything, and is named."""
        store = saved(tmp_path / "s", "free", steps=(100, 200))
        for run, keep in (("one", "last 1"), ("two", "last 2")):
            saved(store, run, steps=(100, 200, 300))
            launched(store, run, keep=keep)
        answer = prune(capsys, store, "--yes", "--grace", "0")
        assert answer.code == 0
        assert "free" in answer.err
        assert [steps(store, capsys, run) for run in ("free", "one", "two")] == [
            [200, 100],
            [300],
            [300, 200],
        ]

    def test_a_policy_can_be_given_for_all(self, tmp_path, capsys):
        """To all runs, also those with another."""
        store = saved(tmp_path / "s", "one", steps=(100, 200))
        saved(store, "two", steps=(100, 200))
        assert prune(capsys, store, "--keep", "last 1", "--yes").code == 0
        assert [steps(store, capsys, run) for run in ("one", "two")] == [[200], [200]]

    def test_a_run_that_is_refused_stops_no_other(self, tmp_path, capsys):
        """It is named, and the exit code is its error's."""
        store = saved(tmp_path / "s", "hurt", steps=(100, 200))
        flip(store, newest=True)
        saved(store, "whole", steps=(100, 200))
        answer = prune(capsys, store, "--keep", "last 1", "--yes")
        assert answer.code == 6
        assert "hurt@200" in answer.err
        assert [steps(store, capsys, run) for run in ("hurt", "whole")] == [[200, 100], [200]]

    def test_a_fork_keeps_its_bytes(self, store, capsys):
        """What a fork needs is neither deleted nor said to be freed."""
        ask(capsys, "fork", "digits@300", "child", "--store", store)
        alone = prune(capsys, store, "digits@200", "--dry-run", "--json").json["frees_bytes"]
        shared = prune(capsys, store, "digits@300", "--dry-run", "--json").json["frees_bytes"]
        assert alone > 80_000 > shared
        document = prune(capsys, store, "digits@300", "--yes", "--grace", "0", "--json").json
        assert document["done"]["bytes"] <= shared + 1000  # its plan
        assert ask(capsys, "verify", "child", "--store", store).code == 0


class TestCloud:
    @pytest.fixture
    def cloud(self, store, capsys, monkeypatch, moto_server):
        """The same run in a bucket."""
        environ = {
            "AWS_ACCESS_KEY_ID": moto_server.access_key,
            "AWS_SECRET_ACCESS_KEY": moto_server.secret_key,
            "AWS_ENDPOINT_URL": moto_server.endpoint,
        }
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        url = f"s3://{moto_server.bucket()}/team"
        assert ask(capsys, "cp", "digits", "--to", url, "--store", store).code == 0
        return url

    def test_a_cloud_is_pruned_with_its_money(self, cloud, capsys):
        """Its usual prices are known; what is pruned comes back; a budget of money needs no --prices."""
        document = prune(capsys, cloud, "digits", "--keep", "last 2", "--dry-run", "--json").json
        assert document["prices"]["name"] == "s3-standard"
        assert document["frees_dollars_a_month"] > 0
        assert "$" in prune(capsys, cloud, "digits", "--keep", "at most $1", "--dry-run").out
        assert prune(capsys, cloud, "digits", "--keep", "last 2", "--yes").code == 0
        assert steps(cloud, capsys) == [600, 500]
        assert ask(capsys, "undelete", "digits@300", "--store", cloud).code == 0
        done = prune(capsys, cloud, "digits", "--keep", "last 3", "--yes", "--grace", "0", "--json").json[
            "done"
        ]
        assert done["bytes"] > 0
        assert steps(cloud, capsys) == [600, 500, 300]
        assert ask(capsys, "verify", "--store", cloud).code == 0


class TestRepack:
    @pytest.fixture
    def thin(self, tmp_path):
        """A store whose first pack holds 160 kB that stay, and 240 kB that go with the first checkpoint."""
        return saved(tmp_path / "thin", steps=(100, 200, 300), own=30_000)

    def test_what_is_mostly_dead_is_written_anew(self, thin, capsys):
        """The rest of a pack goes as well; steps and content stay."""
        planned = prune(capsys, thin, "digits", "--keep", "last 2", "--yes", "--grace", "0", "--json").json
        before = sum(files(thin).values())
        told = prune(capsys, thin, "digits", "--keep", "all", "--repack", "--dry-run", "--json").json
        assert told["repack_frees_bytes"] > 200_000
        assert planned["done"]["repacked"] is None
        words = ["digits", "--keep", "all", "--repack", "--yes", "--grace", "0"]
        done = prune(capsys, thin, *words, "--json").json["done"]
        assert (done["repacked"]["checkpoints"], done["repacked"]["packs"]) == (2, 1)
        assert before - sum(files(thin).values()) > 200_000
        assert steps(thin, capsys) == [300, 200]
        assert ask(capsys, "verify", "--store", thin).code == 0
        assert "0 checkpoints written anew" in prune(capsys, thin, *words).out


class TestWords:
    def test_without_a_terminal_a_yes_is_needed(self, store, capsys):
        """Nothing is looked at and nothing changes before it."""
        before = files(store)
        for words in (["digits", "--keep", "last 1"], ["digits@100"], [], ["--keep", "last 1", "--json"]):
            answer = prune(capsys, store, *words)
            assert answer.code == 2
            assert "--yes" in answer.err
        assert files(store) == before

    @pytest.mark.parametrize(
        ("words", "code", "shows"),
        [
            (["digits"], 2, "--keep"),
            (["digits", "--keep", "lst 3"], 2, "last 3"),
            (["digits", "--keep", "last 0"], 2, "last 3"),
            (["digits", "--keep", "best 2 by foo"], 2, "best 2 by foo max"),
            (["digits", "--keep", "best 2 by accuracy"], 2, "val_loss"),
            (["digits@100", "--keep", "last 1"], 2, "leave --keep out"),
            (["digits", "--keep", "last 1", "--grace", "soon"], 2, "30s, 10m, 2h"),
            (["digits", "--keep", "last 1", "--grace", "-5h"], 2, "30s, 10m, 2h"),
            (["digits", "--keep", "last 1", "--prices", "azure-hott"], 2, "azure-hot"),
            (["digit", "--keep", "last 1"], 3, "did you mean digits?"),
            (["digit"], 3, "did you mean digits?"),
            (["digits@150"], 3, "100, 200"),
        ],
    )
    def test_what_is_off_is_named_with_the_correct_form(self, words, code, shows, store, capsys):
        """And nothing is deleted."""
        answer = prune(capsys, store, *words, "--yes")
        assert answer.code == code
        assert shows in answer.err
        assert steps(store, capsys) == sorted(BEST, reverse=True)

    @pytest.mark.parametrize(("typed", "code", "left"), [("y\n", 0, 1), ("\n", 1, 6), ("no\n", 1, 6)])
    def test_a_terminal_is_asked(self, typed, code, left, store, capsys):
        """Nothing is deleted without a yes, and no is the default."""
        here, there = pty.openpty()
        words = ["prune", "digits", "--keep", "last 1", "--store", store]
        asked = subprocess.Popen(
            [str(Path(sys.executable).parent / "everstep"), *words], stdin=there, stdout=there, stderr=there
        )
        os.close(there)
        shown = b""
        while b"[y/N]" not in shown:
            shown += os.read(here, 1024)
        os.write(here, typed.encode())
        while True:
            try:
                shown += os.read(here, 1024)
            except OSError:  # the other end is closed
                break
        os.close(here)
        assert asked.wait(60) == code
        assert b"5 of 6 checkpoints" in shown
        assert len(steps(store, capsys)) == left


class TestUndelete:
    def test_what_was_pruned_comes_back(self, store, capsys):
        """Whole, until its bytes are swept."""
        prune(capsys, store, "digits", "--keep", "last 1", "--yes")
        answer = ask(capsys, "undelete", "digits@200", "--store", store)
        assert (answer.code, answer.out.strip()) == (0, "digits@200")
        assert steps(store, capsys) == [600, 200]
        assert ask(capsys, "verify", "digits@200", "--store", store).code == 0
        prune(capsys, store, "digits", "--keep", "last 1", "--yes", "--grace", "0")
        gone = ask(capsys, "undelete", "digits@200", "--store", store)
        assert gone.code == 3
        assert "may be gone" in gone.err

    def test_what_can_come_back_is_listed_with_its_time(self, store, capsys):
        """Newest first, with the policy that pruned it."""
        began = time.time()
        prune(capsys, store, "digits", "--keep", "last 1", "--yes")
        answer = ask(capsys, "undelete", "digits", "--list", "--store", store)
        assert "digits@200" in answer.out
        assert "last 1" in answer.out
        words = ["undelete", "--run", "digits", "--list", "--grace", "2h", "--store", store, "--json"]
        found = ask(capsys, *words).json["checkpoints"]
        assert [one["step"] for one in found] == [500, 400, 300, 200, 100]
        assert abs(found[0]["pruned"] - began) < 60
        assert found[0]["until"] == found[0]["pruned"] + 7200

    def test_nothing_to_undelete_is_no_error(self, store, capsys):
        """It is said."""
        answer = ask(capsys, "undelete", "digits", "--list", "--store", store)
        assert (answer.code, answer.out) == (0, "")
        assert "nothing to undelete" in answer.err

    @pytest.mark.parametrize(
        ("words", "code", "shows"),
        [
            (["digits"], 2, "--list"),
            (["digits@soon"], 2, "digits@STEP"),
            (["digits@200", "--list"], 2, "undelete digits --list"),
            (["digit@200"], 3, "did you mean digits?"),
            (["digit", "--list"], 3, "did you mean digits?"),
            (["digits@150"], 3, "100, 200"),
        ],
    )
    def test_what_is_off_is_named_with_the_correct_form(self, words, code, shows, store, capsys):
        """Run, step or form."""
        answer = ask(capsys, "undelete", *words, "--store", store)
        assert answer.code == code
        assert shows in answer.err

    def test_one_that_stands_is_left_as_it_is(self, store, capsys):
        """A second undelete is no error."""
        assert ask(capsys, "undelete", "digits@200", "--store", store).code == 0
        assert json.loads(ask(capsys, "undelete", "digits@200", "--store", store, "--json").out)["checkpoint"]


def test_the_document_of_a_prune_says_what_was_done(store, capsys):
    """Checkpoints by their fields, objects and bytes."""
    done = prune(capsys, store, "digits", "--keep", "last 1", "--yes", "--grace", "0", "--json").json["done"]
    assert [one["step"] for one in done["pruned"]] == [500, 400, 300, 200, 100]
    assert done["objects"] > done["packs"] > 0
    assert done["repacked"] is None
