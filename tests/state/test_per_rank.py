"""What each rank has of its own."""

import msgspec
import pytest

from everstep.errors import RestoreMismatch
from everstep.state import PerRank, assemble, flatten, match
from tests.state.moving import fill, loaded, restored


def test_each_rank_files_its_part_under_its_number():
    """The path holds the rank, so that the parts of several ranks stand beside each other."""
    (*_, leaf) = flatten({"pos": PerRank(5)}, rank=3).entries
    assert leaf.path == "pos/3"
    assert loaded({"pos": PerRank([1, 2])})["pos"] == {0: [1, 2]}


def test_a_rank_takes_its_own_part():
    """In place where that can be, replaced in the PerRank otherwise."""
    live = {"a": PerRank(0), "b": PerRank({"n": 0})}
    inner = live["b"].value
    restored({"a": PerRank(7), "b": PerRank({"n": 8})}, live, rank=2)
    assert live["a"].value == 7
    assert live["b"].value is inner
    assert inner == {"n": 8}


def test_a_rank_without_a_part_is_told():
    """By number, with the ranks there are, unless it is skipped."""
    entries = flatten({"pos": PerRank(5)}, rank=0).entries
    with pytest.raises(
        RestoreMismatch, match="pos has no part for rank 1; the checkpoint has those of ranks 0"
    ):
        match({"pos": PerRank(0)}, entries, rank=1)
    live = {"pos": PerRank(4)}
    fill(match(live, entries, rank=1, strict=False, skip=["pos"]), {})
    assert live["pos"].value == 4
    with pytest.raises(RestoreMismatch, match="PerRank"):
        match({"pos": PerRank(0)}, flatten({"pos": 1}).entries)


def test_the_parts_of_other_ranks_are_no_mismatch():
    """A checkpoint of two ranks restores on each."""
    first, second = (flatten({"pos": PerRank(n)}, rank=n).entries for n in (0, 1))
    both = [first[0], msgspec.structs.replace(first[1], keys=[0, 1]), first[2], second[2]]
    live = {"pos": PerRank(None)}
    fill(match(live, both, rank=1), {})
    assert live["pos"].value == 1
    assert fill(assemble(both), {}) == {"pos": {0: 0, 1: 1}}
