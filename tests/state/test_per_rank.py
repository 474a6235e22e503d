"""What each rank has of its own."""

import random

import numpy as np
import pytest
import torch

from everstep.errors import RestoreError, RestoreMismatch
from everstep.state import RNG, PerRank, flatten, match
from tests.state.moving import fill, loaded, restored
from tests.state.uniting import loaded_from, restored_by, saved_by


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


def test_what_is_by_rank_in_one_of_both_only_is_a_mismatch():
    """A plain part does not become one by rank."""
    with pytest.raises(RestoreMismatch, match="PerRank"):
        match({"pos": PerRank(0)}, flatten({"pos": 1}).entries)


def test_the_parts_of_other_ranks_are_no_mismatch():
    """A checkpoint of two ranks restores on each, and loads as a dict by rank."""
    lives = [{"pos": PerRank(None)}, {"pos": PerRank(None)}]
    coverages = restored_by([{"pos": PerRank(0)}, {"pos": PerRank(1)}], lives)
    assert [live["pos"].value for live in lives] == [0, 1]
    assert all(coverage.resized == () for coverage in coverages)
    assert loaded_from({"pos": PerRank(0)}, {"pos": PerRank(1)}) == {"pos": {0: 0, 1: 1}}


def test_the_bytes_of_a_part_are_this_ranks_alone():
    """No other rank is asked to write them; what is beside it is everyone's."""
    state = {"own": PerRank(torch.ones(2)), "all": torch.zeros(3)}
    replicas = {piece.path: piece.replicas for piece in flatten(state, rank=2, world=4).pieces}
    assert replicas == {"own/2": (2,), "all": None}


def test_fewer_ranks_take_the_parts_of_their_numbers():
    """And are told that the number changed."""
    lives = [{"pos": PerRank(None)}, {"pos": PerRank(None)}]
    coverages = restored_by([{"pos": PerRank(n)} for n in (10, 11, 12)], lives)
    assert [live["pos"].value for live in lives] == [10, 11]
    assert [coverage.resized for coverage in coverages] == [("pos",), ("pos",)]


def test_a_rank_beyond_the_saved_ones_keeps_what_it_has():
    """And is told; the others take theirs."""
    lives = [{"pos": PerRank(7)}, {"pos": PerRank(8)}]
    coverages = restored_by([{"pos": PerRank(5)}], lives)
    assert [live["pos"].value for live in lives] == [5, 8]
    assert [coverage.resized for coverage in coverages] == [("pos",), ("pos",)]


def test_a_rank_beyond_the_saved_ones_is_told_where_the_number_of_ranks_is_not_known():
    """Its part is not there."""
    live = {"pos": PerRank(8)}
    restoration = match(live, flatten({"pos": PerRank(5)}).entries, rank=1)
    fill(restoration, {})
    assert live["pos"].value == 8
    assert restoration.coverage.resized == ("pos",)


def test_a_skipped_part_stays():
    """Whether it was saved for this rank or not."""
    entries = flatten({"pos": PerRank(5)}).entries
    for rank, skip in ((0, "pos/0"), (0, "pos"), (1, "pos")):
        live = {"pos": PerRank(4, resize=lambda *_: 9)}
        restoration = match(live, entries, rank=rank, world=2, strict=False, skip=[skip])
        fill(restoration, {})
        assert live["pos"].value == 4
        assert restoration.coverage.resized == ()


def halves(parts, rank, world):
    """The ranks' positions, summed and cut anew."""
    return {"seen": sum(part["seen"] for part in parts) // world, "rank": rank}


def test_resize_decides_from_all_parts():
    """It is asked on every rank, with tensors and plain values of all."""
    sources = [{"pos": PerRank({"seen": n, "rank": n, "at": torch.full((2,), n)})} for n in (2, 4)]
    seen = []

    def resize(parts, rank, world):
        seen.append((rank, world, [part["at"].tolist() for part in parts]))
        return halves(parts, rank, world)

    lives = [{"pos": PerRank({"seen": 0, "rank": 0}, resize=resize)} for _ in range(3)]
    dicts = [live["pos"].value for live in lives]
    coverages = restored_by(sources, lives)
    assert seen == [(rank, 3, [[2, 2], [4, 4]]) for rank in range(3)]
    assert [live["pos"].value for live in lives] == [{"seen": 2, "rank": n} for n in range(3)]
    assert all(live["pos"].value is one for live, one in zip(lives, dicts, strict=True))
    assert all(coverage.resized == ("pos",) for coverage in coverages)


def test_resize_is_not_asked_where_the_number_is_the_same():
    """Each rank has its own then."""
    lives = [{"pos": PerRank(0, resize=lambda *_: 99)} for _ in range(2)]
    restored_by([{"pos": PerRank(3)}, {"pos": PerRank(4)}], lives)
    assert [live["pos"].value for live in lives] == [3, 4]


class Loader:
    """Something with a state, of a class that a load does not know."""

    def __init__(self, seen=0):
        self.seen = seen

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"]


def test_what_resize_returns_goes_into_objects_and_generators():
    """By load_state_dict, into the process's streams, into generators by their state; the rest is replaced."""

    def one(seen, seed):
        generator = torch.Generator().manual_seed(seed)
        np_generator = np.random.default_rng(seed)
        own = random.Random(seed)
        rng = RNG(numpy=False, torch=False, cuda=False, generators={"own": own})
        return {"l": Loader(seen), "g": [generator, np_generator], "rng": rng, "n": (seed,)}

    def second(parts, rank, world):
        assert (rank, world) == (0, 1)
        return {
            **parts[1],
            "g": None,
            "torch": parts[1]["g"][0],
            "np": parts[1]["g"][1],
        }

    random.seed(5)
    expected = random.Random(5).random()
    live = one(0, 0)
    live["torch"], live["np"] = torch.Generator(), np.random.default_rng()
    loader, own = live["l"], live["rng"].generators["own"]
    states = [{"p": PerRank(one(1, 1))}, {"p": PerRank(one(2, 2))}]
    entries, kept = saved_by(*states)
    random.seed(6)
    fill(match({"p": PerRank(live, resize=second)}, entries, rank=0, world=1), kept)
    assert live["l"] is loader
    assert loader.seen == 2
    assert live["n"] == (2,)
    assert random.random() == expected
    assert own.random() == random.Random(2).random()
    assert torch.equal(
        torch.rand(2, generator=live["torch"]), torch.rand(2, generator=torch.Generator().manual_seed(2))
    )
    assert live["np"].random() == np.random.default_rng(2).random()


@pytest.mark.parametrize(
    ("value", "made", "message"),
    [
        (random.Random(1), 5, "p is a random.Random that does not take"),
        (RNG(), 5, "p is an RNG and was given a int"),
        (Loader(), 5, "load_state_dict"),
    ],
)
def test_what_resize_returns_must_fit(value, made, message):
    """Else it is told, by path."""
    entries, kept = saved_by({"p": PerRank(1)}, {"p": PerRank(2)})
    with pytest.raises(RestoreError, match=message):
        fill(match({"p": PerRank(value, resize=lambda *_: made)}, entries, rank=0, world=1), kept)


def test_a_resize_that_fails_is_told_with_its_rank():
    """By path."""
    entries, kept = saved_by({"p": PerRank(1)}, {"p": PerRank(2)})
    with pytest.raises(RestoreError, match="resize of p failed for rank 2 of 3: ZeroDivisionError"):
        fill(match({"p": PerRank(0, resize=lambda *_: 1 // 0)}, entries, rank=2, world=3), kept)
