"""Ranks that must hold the same bytes and do not: found before anything is committed, leaf and rank named."""

import pytest

from tests.zygote import rendezvous

WORLD = 3


@pytest.fixture
def ranks(zygote, tmp_path):
    """Runs a case on all ranks and gives what each of them told."""

    def run(case):
        name = f"tests.checkpointer.replica_cases:{case}"
        ended = zygote.run(name, rendezvous(), str(tmp_path), world=WORLD, EVERSTEP_PATIENCE="20")
        assert [one.code for one in ended] == [0] * WORLD, [one.printed for one in ended]
        return [one.told for one in ended]

    return run


def test_ranks_that_never_were_in_step_are_refused_without_being_asked(ranks):
    """Plain parameters that differ would be a mixture of ranks: refused, with what to do; PerRank is one way."""
    for bad, good, own, steps in ranks("out_of_step"):
        assert bad[0] == "DivergentReplicas"
        assert "'model/bias' on" in bad[1]
        assert "PerRank" in bad[1]
        assert good is None
        assert own is None
        assert steps == [3, 2]


def test_batch_statistics_may_differ_and_those_of_rank_0_are_kept(ranks):
    """Buffers that each rank keeps are saved from rank 0, as a data-parallel forward pass takes them; the check names them."""
    for saved, restored, checked in ranks("batch_statistics"):
        assert saved is None
        assert restored == [0.0]
        assert checked[0] == "DivergentReplicas"
        assert "'model/1.running_mean'" in checked[1]


def test_one_wrong_bit_on_one_rank_is_found_by_the_check(ranks):
    """check_replicas: the leaf and the rank in the minority are named on all ranks, and nothing is committed."""
    for bad, good in ranks("one_bit"):
        assert bad[0] == "DivergentReplicas"
        assert "'a' on rank 1" in bad[1]
        assert "'b'" not in bad[1]
        assert good is None
