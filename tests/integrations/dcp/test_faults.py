"""Ranks that fail: nothing is committed, all ranks are told which one it was, and the next save goes on."""

import pytest
import torch

import everstep as es
from tests.cli.worlds import ask
from tests.integrations.dcp import fault_jobs, jobs

COORDINATOR_ONLY = ("prepare_global_plan", "finish")


@pytest.mark.parametrize("step", fault_jobs.STEPS)
def test_a_rank_that_fails_fails_the_save_and_nothing_else(ranks, tmp_path, capsys, step):
    """At each call of DCP, and at each object that it stores: the checkpoint before stands, the next one is made."""
    for rank in (0, 2):
        if step in COORDINATOR_ONLY and rank:
            continue
        for late in (
            (False, True) if step in ("write_data", "prepare_local_plan", "finish_plan") else (False,)
        ):
            run = f"r{rank}{late}"
            for told, seen in ranks.run(fault_jobs.faulty_save, str(tmp_path), run, step, rank, late):
                assert told == [2, [rank]], (rank, late)
                assert seen == [1, 1, 3], (rank, late)
            listed = ask(capsys, "ls", run, "--store", tmp_path, "--json").json["checkpoints"]
            assert [one["step"] for one in listed] == [3, 1]
            assert ask(capsys, "verify", run, "--store", tmp_path).code == 0


@pytest.mark.parametrize("step", fault_jobs.READ_STEPS)
def test_a_rank_that_cannot_read_fails_the_load_on_all(ranks, tmp_path, step):
    """All ranks are told which one it was; the checkpoint is as before."""
    rank = 0 if step == "prepare_global_plan" else 3
    for told, newest in ranks.run(fault_jobs.faulty_load, str(tmp_path), "r", step, rank):
        assert told == [rank]
        assert newest == 1


def test_a_save_without_its_end_is_never_seen(ranks, tmp_path):
    """The same step saved by a new writer is a new checkpoint; the old writer is fenced from then on."""
    assert ranks.run(fault_jobs.without_coordinator, str(tmp_path), "r") == [[1, 2, "Fenced"]] * 4


def test_any_rank_can_be_the_coordinator(ranks, tmp_path):
    """On save and on load."""
    assert ranks.run(fault_jobs.second_is_coordinator, str(tmp_path), "r") == [True] * 4


def test_ranks_may_have_names_of_their_own(ranks, tmp_path):
    """All of them are in the one checkpoint."""
    assert ranks.run(fault_jobs.different_ranks, str(tmp_path), "r") == [4] * 4


def test_cached_plans_save_what_is_there_now(ranks, tmp_path):
    """A planner that caches plans hands old ones over; also a new writer saves into its own checkpoint."""
    assert ranks.run(fault_jobs.cached_plans, str(tmp_path), "r") == [[1.0, 2.0, 3.0, 4.0]] * 4


def test_without_collectives_each_rank_gets_its_own_back(ranks, tmp_path, capsys):
    """DTensors are one tensor, of whose replicas one rank writes; a rank that fails fails the save on all."""
    found = ranks.run(fault_jobs.no_collectives, str(tmp_path), "r")
    assert found == [[[10 * rank + 1, 10 * rank + 2], "UnsupportedLeaf"] for rank in range(4)]
    whole = es.load(str(tmp_path), "r")
    assert whole["loader"]["at"] == {0: 2, 1: 12, 2: 22, 3: 32}
    assert torch.equal(whole["hybrid"]["uneven"], jobs.full("uneven"))
    once = 3 * sum(jobs.full(name).nbytes for name in jobs.SHAPES) + 4 * (1 + 2 + 3 + 4)
    with es.Checkpointer(str(tmp_path), "r") as ckpt:
        assert ckpt.latest().bytes == once
    assert [
        one["step"] for one in ask(capsys, "ls", "r", "--store", tmp_path, "--json").json["checkpoints"]
    ] == [2, 1]
    assert ask(capsys, "verify", "r", "--store", tmp_path).code == 0


def test_a_rank_alone_saves_alone(ranks, tmp_path):
    """no_dist in a process group: each rank its own run."""
    assert ranks.run(fault_jobs.alone, str(tmp_path), "own") == [0.0, 1.0, 2.0, 3.0]
