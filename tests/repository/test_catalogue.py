"""Runs and checkpoints, found by name and newest first."""

from __future__ import annotations

import pytest

from everstep.errors import (
    CheckpointNotFound,
    CheckpointPruned,
    CorruptObject,
    InvalidName,
    RunNotFound,
    UsageError,
)
from everstep.repository import keys as k
from everstep.repository.attempts import claim
from everstep.repository.catalogue import checkpoints, ensure_run, find, newest, resolve, runs
from everstep.repository.saves import abort, begin
from everstep.repository.tags import set_tag
from everstep.store.count import Count
from everstep.store.fault import Fault, Injection, Kind, Scripted
from everstep.store.memory import MemoryStore
from tests.repository.worlds import last, overwrite, plant, put, reopened, started, world

LEAVES = {"w": b"weights"}


def test_runs_are_listed_by_name():
    """A run is there from the moment that it is ensured, with its policy."""
    repo = world()
    for name in ("b", "a", "C"):
        ensure_run(repo, name, keep="last 3")
    assert [record.run for record in runs(repo)] == ["C", "a", "b"]
    assert ensure_run(repo, "a", keep="last 5").keep == "last 3"


def test_names_that_differ_by_case_alone_clash():
    """On many file systems the two would be one folder."""
    repo = world()
    ensure_run(repo, "GPT")
    with pytest.raises(InvalidName, match="'GPT'"):
        ensure_run(repo, "gpt")
    with pytest.raises(RunNotFound, match="'GPT'"):
        checkpoints(repo, "gpt")


def test_two_clashing_runs_made_at_once_are_one():
    """Both create the same key, so the store decides; the loser did not see the other when it looked."""
    repo = world()
    key = k.run_key("GPT")

    class Blind(MemoryStore):
        looks = 0

        def create(self, key, body):
            if key.startswith(k.CATALOGUE) and not self.looks:
                self.looks += 1
                super().create(key, repo.store.get(key, 10**6))
            super().create(key, body)

    ensure_run(repo, "GPT")
    blind = world(Blind())
    with pytest.raises(InvalidName, match="'GPT'"):
        ensure_run(blind, "gpt")
    assert blind.store.get(key, 10**6) == repo.store.get(key, 10**6)


def test_checkpoints_are_newest_first_with_their_tags():
    """The highest step first; each with the names that people gave it."""
    repo, attempt = started()
    made = [put(repo, attempt, step, LEAVES) for step in (1, 20, 3)]
    set_tag(repo, "best", made[0])
    set_tag(repo, "also", made[0])
    found = checkpoints(repo, "run")
    assert [(one.step, one.tags) for one in found] == [(20, ()), (3, ()), (1, ("also", "best"))]


def test_fault_16_after_a_rollback_the_highest_attempt_wins():
    """Rolled back to 300 and saved 350, while an older attempt has 400: the newest is 350."""
    repo, first = started()
    for step in (300, 400):
        put(repo, first, step, LEAVES)
    put(repo, claim(repo, "run", owner="rolled back"), 350, LEAVES)
    assert last(repo).step == 350
    assert [one.step for one in checkpoints(repo, "run")] == [350, 400, 300]


def test_the_newest_of_a_thousand_costs_three_requests():
    """One page of a list, the commit record, and the look for its tomb."""
    store = Count(MemoryStore())
    repo, attempt = started(store)
    for step in range(1000):
        put(repo, attempt, step, {})
    store.clear()
    assert last(repo).step == 999
    assert store.calls == {"list": 1, "get": 2}


def test_pruned_and_aborted_saves_are_passed_over():
    """The newest is the newest of those that stand."""
    repo, attempt = started()
    made = [put(repo, attempt, step, LEAVES) for step in (1, 2, 3)]
    plant(repo.store, k.tomb_key("run", made[2].save), b"")
    abort(repo, begin(repo, attempt, 4), "no space")
    begin(repo, attempt, 5)
    assert last(repo) == made[1]
    assert [one.step for one in checkpoints(repo, "run")] == [2, 1]


def test_a_run_without_checkpoints():
    """It has no newest; asked for one, the error says so."""
    repo, _ = started()
    assert newest(repo, "run") is None
    assert checkpoints(repo, "run") == []
    with pytest.raises(CheckpointNotFound):
        find(repo, "run")


def test_an_unknown_run_is_named():
    """A run that is not there is another error than a run without checkpoints."""
    repo = world()
    assert newest(repo, "nothing") is None
    for ask in (lambda: find(repo, "nothing"), lambda: checkpoints(repo, "nothing")):
        with pytest.raises(RunNotFound, match="'nothing'"):
            ask()


def test_a_step_that_is_not_there_hints_at_the_nearest():
    """Three steps around the one that was asked for."""
    repo, attempt = started()
    for step in (10, 20, 30, 40, 50):
        put(repo, attempt, step, LEAVES)
    with pytest.raises(CheckpointNotFound, match="20, 30, 40"):
        find(repo, "run", 31)


def test_a_pruned_step_says_so():
    """It was there: that is another error than one that never was."""
    repo, attempt = started()
    made = put(repo, attempt, 10, LEAVES)
    put(repo, attempt, 20, LEAVES)
    plant(repo.store, k.tomb_key("run", made.save))
    with pytest.raises(CheckpointPruned, match="nearest steps are 20"):
        find(repo, "run", 10)


def test_a_step_that_two_attempts_have_is_the_higher_ones():
    """Unless the higher attempt's was pruned."""
    repo, attempt = started()
    old = put(repo, attempt, 10, {"w": b"old"})
    new = put(repo, claim(repo, "run", owner="next"), 10, {"w": b"new"})
    assert find(repo, "run", 10) == new
    plant(repo.store, k.tomb_key("run", new.save))
    assert find(repo, "run", 10) == old


def test_names_that_people_write():
    """RUN, RUN@STEP, RUN@SAVE and tag:NAME."""
    repo, attempt = started()
    first, second = put(repo, attempt, 1, LEAVES), put(repo, attempt, 2, LEAVES)
    set_tag(repo, "best", first)
    assert resolve(repo, "run") == second
    assert resolve(repo, "run@1").save == first.save
    assert resolve(repo, f"run@{first.save}").save == first.save
    assert resolve(repo, "tag:best").tags == ("best",)
    for wrong, error in {
        "run@x": UsageError,
        "run@": UsageError,
        "run@7": CheckpointNotFound,
        "tag:no": CheckpointNotFound,
        "../run": InvalidName,
    }.items():
        with pytest.raises(error):
            resolve(repo, wrong)


def test_a_damaged_record_is_raised_or_passed_over_as_the_caller_likes():
    """A list shows the others; the newest raises, naming the key."""
    repo, attempt = started()
    made = [put(repo, attempt, step, LEAVES) for step in (1, 2)]
    key = k.commit_key("run", made[1].save)
    overwrite(repo.store, key, b"damaged")
    with pytest.raises(CorruptObject, match=key):
        newest(repo, "run")
    with pytest.raises(CorruptObject, match=key):
        checkpoints(repo, "run")
    heard = []
    assert [one.step for one in checkpoints(repo, "run", on_damage=heard.append)] == [1]
    assert len(heard) == 1


def test_a_record_under_another_saves_key_is_damage():
    """What a record says must be what its key says."""
    repo, attempt = started()
    made = [put(repo, attempt, step, LEAVES) for step in (1, 2)]
    body = repo.store.get(k.commit_key("run", made[0].save), 10**6)
    overwrite(repo.store, k.commit_key("run", made[1].save), body)
    with pytest.raises(CorruptObject, match=k.commit_key("run", made[1].save)):
        newest(repo, "run")


def test_fault_20_a_repeated_list_page_shows_each_checkpoint_once():
    """A list that gives an entry twice is read as if it had not."""
    repo, attempt = started()
    put(repo, attempt, 1, LEAVES)
    set_tag(repo, "best", last(repo))
    for at in range(1, 6):
        store = Fault(repo.store, Scripted(Injection(kind=Kind.REPEATED, at=at, verb="list")))
        assert [one.tags for one in checkpoints(reopened(repo, store), "run")] == [("best",)]
        assert len(runs(reopened(repo, store))) == 1


def test_foreign_files_among_the_records_are_passed_over():
    """A file manager's droppings do not stop a run."""
    repo, attempt = started()
    put(repo, attempt, 1, LEAVES)
    for prefix in (k.commits_prefix("run"), k.plans_prefix("run"), k.attempts_prefix("run"), k.CATALOGUE):
        plant(repo.store, f"{prefix}DS_Store", b"junk")
    assert len(checkpoints(repo, "run")) == len(runs(repo)) == 1
    assert claim(repo, "run", owner="next").number == 2


def test_runs_are_listed_without_their_saves():
    """One list and one read for each run, however many saves lie beside them."""
    store = Count(MemoryStore())
    repo, attempt = started(store)
    for step in range(100):
        put(repo, attempt, step, {})
    ensure_run(repo, "other")
    store.clear()
    assert len(runs(repo)) == 2
    assert store.calls == {"list": 1, "get": 2}


def test_a_damaged_tag_is_no_reason_not_to_restore():
    """The checkpoint is found, without that tag; a list tells."""
    repo, attempt = started()
    set_tag(repo, "good", put(repo, attempt, 1, LEAVES))
    plant(repo.store, k.tag_key("bad"), b"damaged")
    assert find(repo, "run", 1).tags == find(repo, "run").tags == ("good",)
    with pytest.raises(CorruptObject, match=k.tag_key("bad")):
        checkpoints(repo, "run")
    heard = []
    assert [one.tags for one in checkpoints(repo, "run", on_damage=heard.append)] == [("good",)]
    assert len(heard) == 1
