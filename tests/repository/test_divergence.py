"""Replicas that differ are found by group, and named by leaf and ranks."""

from __future__ import annotations

import pytest

from everstep.format.box import Box
from everstep.format.digests import digest_of
from everstep.format.replicas import Copies, copies, group_of, replicas, runs_of
from everstep.format.wire import from_bytes, to_bytes
from everstep.repository.divergence import divergence, divergent
from everstep.repository.reading import load_index
from everstep.repository.saves import begin, commit, write_index
from tests.repository.rank_worlds import index_of, state, written
from tests.repository.worlds import no_sleep, started

ROW = Box((0,), (4,))


def held(**leaves):
    """What a rank holds of a group, by leaf."""
    return copies((path, ROW, digest_of(body.encode())) for path, body in leaves.items())


def told(groups_by_rank):
    """Outlines of ranks that hold these groups."""
    repo, attempt = started(ranks=len(groups_by_rank))
    save = begin(repo, attempt, 1)
    return [
        write_index(
            repo,
            save,
            index_of(repo, save, rank, state(rank, save.world), writes=[]),
            replicas=replicas(groups),
        )
        for rank, groups in enumerate(groups_by_rank)
    ]


def test_groups_that_agree_are_not_told():
    """Whatever the order in which their boxes were hashed."""
    groups = [{None: held(a="1", b="2")}, {None: held(b="2", a="1")}]
    assert divergent(told(groups)) == ()


def test_a_group_that_differs_is_told_with_its_parties():
    """Groups of few ranks and the one of all ranks are compared each on its own."""
    everyone = [held(a="1")] * 4
    pairs = [held(w="x"), held(w="x"), held(w="y"), held(w="z")]
    groups = [
        {None: everyone[rank], (0, 1) if rank < 2 else (2, 3): pairs[rank], (rank,): held(own=str(rank))}
        for rank in range(4)
    ]
    (found,) = divergent(told(groups))
    assert (found.ranks, found.parties) == ((2, 3), ((2,), (3,)))
    groups[1] = {**groups[1], None: held(a="2")}
    found = divergent(told(groups))
    assert {one.ranks: one.parties for one in found} == {
        (2, 3): ((2,), (3,)),
        (0, 1, 2, 3): ((0, 2, 3), (1,)),
    }


def test_a_rank_without_digests_proves_nothing():
    """The option may be off there; what the others say is compared."""
    assert divergent(told([{None: held(a="1")}, {}])) == ()


def test_the_leaf_and_the_ranks_in_the_minority_are_named():
    """Box by box: each leaf with the ranks that hold other bytes than most do."""
    leaves = [{"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "0", "c": "3"}, {"a": "9", "b": "2", "c": "3"}]
    words = [
        from_bytes(to_bytes(Copies(format=1, rank=rank, copies=held(**one))), Copies)
        for rank, one in enumerate(leaves)
    ]
    error = divergence("run", "save", words)
    assert error is not None
    assert error.message == "replicas differ in save save of run 'run': 'a' on rank 2; 'b' on rank 1"
    assert error.fields["leaves"] == (("a", (2,)), ("b", (1,)))
    assert (error.fields["path"], error.fields["ranks"]) == ("a", (2,))


def test_two_replicas_that_differ_are_both_named():
    """Nobody can say which of them is right."""
    words = [Copies(format=1, rank=rank, copies=held(a=str(rank))) for rank in range(2)]
    error = divergence("run", "save", words)
    assert error is not None
    assert "'a' on rank 0, 1 (no majority" in error.message
    assert divergence("run", "save", [words[0], Copies(format=1, rank=1, copies=held(a="0"))]) is None


@pytest.mark.parametrize(
    ("ranks", "runs"),
    [
        ((0, 1, 2, 3), ((0, 4, 1),)),
        ((3, 7, 11), ((3, 3, 4),)),
        ((5,), ((5, 1, 1),)),
        ((0, 1, 8, 9), ((0, 2, 1), (8, 2, 1))),
        (range(0, 2048, 8), ((0, 256, 8),)),
    ],
)
def test_groups_are_written_as_runs(ranks, runs):
    """So that a group of many ranks takes few bytes."""
    assert runs_of(ranks) == runs
    assert group_of(runs, 2048) == tuple(ranks)


def test_the_digests_change_nothing_in_the_store():
    """They are told beside the index; the manifest is that of a save without them."""
    repo, attempt = started(ranks=2)
    save, outlines = written(repo, attempt, 1, [state(rank, 2) for rank in range(2)])
    made = commit(repo, save, outlines, timeout_s=0, sleep=no_sleep)
    marked = [
        write_index(repo, save, index_of_again(repo, save, one), replicas=replicas({None: held(a="1")}))
        for one in outlines[:1]
    ]
    assert marked[0].ref == outlines[0].ref
    assert commit(repo, save, [*marked, outlines[1]], timeout_s=0, sleep=no_sleep) == made


def index_of_again(repo, save, told):
    """The index that an outline is of."""
    return load_index(repo, save.run, save.id, told.ref)
