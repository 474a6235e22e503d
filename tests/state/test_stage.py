"""Pipeline stages: what only some ranks have."""

import dataclasses

import pytest
import torch

from everstep.errors import RestoreMismatch, UnsupportedLeaf, UsageError
from everstep.format.entries import Tensor
from everstep.format.layouts import ranks_of
from everstep.state import PerRank, Stage, flatten, match
from tests.state.moving import restored
from tests.state.uniting import loaded_from, restored_by, saved_by


@dataclasses.dataclass(frozen=True)
class Frozen:
    """A part that cannot be changed."""

    n: int


class Holder:
    """An object whose state has a stage in it."""

    def state_dict(self):
        return {"s": Stage({})}

    def load_state_dict(self, state):
        raise NotImplementedError(state)


def layers(*numbers, seed=0):
    """Some layers of a model, by the names that they have in the whole."""
    torch.manual_seed(seed)
    return torch.nn.ModuleDict({str(n): torch.nn.Linear(2, n + 1) for n in numbers})


def same(one, other):
    """The parameters that both have are the same bits."""
    a, b = one.state_dict(), other.state_dict()
    assert a.keys() & b.keys()
    return all(torch.equal(a[key], b[key]) for key in a.keys() & b.keys())


def test_the_paths_are_those_without_it():
    """Only the container says that there may be more on other ranks."""
    part = layers(0, 1)
    plain, staged = (flatten({"m": one}).entries for one in (part, Stage(part)))
    assert [entry.path for entry in staged] == [entry.path for entry in plain]
    assert staged[1].type == "stage"
    assert staged[1].keys == plain[1].keys


def test_the_tensors_of_a_stage_are_its_ranks():
    """In the entry's layout and in the pieces, so that no other rank is asked to write them."""
    flat = flatten({"m": Stage(layers(0), ranks=[5, 1, 3]), "n": Stage(layers(0))}, rank=3, world=6)
    held = {entry.path: ranks_of(entry.layout) for entry in flat.entries if isinstance(entry, Tensor)}
    assert held == {"m/0.weight": (1, 3, 5), "m/0.bias": (1, 3, 5), "n/0.weight": (3,), "n/0.bias": (3,)}
    assert {piece.path: piece.replicas for piece in flat.pieces} == held


def test_two_stages_restore_as_two():
    """Each rank finds its own and is told of nothing missing or left over."""
    sources = [{"m": Stage(layers(0, 1))}, {"m": Stage(layers(2))}]
    lives = [{"m": Stage(layers(0, 1, seed=1))}, {"m": Stage(layers(2, seed=1))}]
    coverages = restored_by(sources, lives)
    for source, live, coverage in zip(sources, lives, coverages, strict=True):
        assert same(source["m"].value, live["m"].value)
        assert coverage.unexpected == ()
        assert set(coverage.restored) == {f"m/{key}" for key in live["m"].value.state_dict()}


def test_two_stages_restore_as_one_model_and_back():
    """The union is the model; a whole model's checkpoint gives each stage its part."""
    sources = [{"m": Stage(layers(0, 1))}, {"m": Stage(layers(2))}]
    whole = {"m": layers(0, 1, 2, seed=1)}
    restored_by(sources, [whole])
    assert all(same(source["m"].value, whole["m"]) for source in sources)
    lives = [{"m": Stage(layers(0, seed=2))}, {"m": Stage(layers(1, 2, seed=2))}]
    restored_by([whole], lives)
    assert all(same(live["m"].value, whole["m"]) for live in lives)


def test_stages_move_to_other_ranks():
    """Three ranks' layers on two, cut elsewhere."""
    sources = [{"m": Stage(layers(n))} for n in range(3)]
    lives = [{"m": Stage(layers(0, 1, seed=1))}, {"m": Stage(layers(2, seed=1))}]
    restored_by(sources, lives)
    for n, live in ((0, 0), (1, 0), (2, 1)):
        assert same(sources[n]["m"].value, lives[live]["m"].value)


def test_a_load_gives_the_union():
    """As a dict, nested ones united too."""
    found = loaded_from(
        {"s": Stage({"m": layers(0), "n": {"a": 1}})},
        {"s": Stage({"m": layers(2), "n": {"b": 2}})},
    )
    assert list(found["s"]["m"]) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert found["s"]["n"] == {"a": 1, "b": 2}


def test_what_the_stage_has_and_the_checkpoint_not_is_missing():
    """As without it."""
    with pytest.raises(RestoreMismatch, match=r"m/3.weight is in the state and not in the checkpoint"):
        restored({"m": Stage(layers(0, 1))}, {"m": Stage(layers(1, 3))})
    coverage = restored({"m": Stage(layers(0))}, {"m": Stage(layers(0, 3))}, strict=False, skip=["m/3.*"])
    assert coverage.missing == ("m/3.weight", "m/3.bias")


def test_beside_a_stage_what_is_left_over_is_told():
    """Only what is below it may be another rank's."""
    with pytest.raises(RestoreMismatch, match="n is in the checkpoint and not in the state"):
        restored({"m": Stage(layers(0)), "n": 1}, {"m": Stage(layers(0))})


def test_a_stage_without_anything_takes_nothing():
    """A rank that has no such part gives an empty dict."""
    lives = [{"m": Stage(layers(0, seed=1))}, {"m": Stage({})}]
    restored_by([{"m": Stage(layers(0))}, {"m": Stage({})}], lives)
    assert lives[1]["m"].value == {}


def test_plain_values_of_a_stage_are_put_back():
    """In the dict that it holds, or in the place of the value in a frozen part."""
    live = {"s": Stage({"n": 0, "deep": {"t": (1,)}})}
    restored({"s": Stage({"n": 3, "deep": {"t": (2,)}})}, live)
    assert live["s"].value == {"n": 3, "deep": {"t": (2,)}}
    frozen = {"s": Stage(Frozen(n=0))}
    restored({"s": Stage(Frozen(n=3))}, frozen)
    assert frozen["s"].value == Frozen(n=3)


def test_what_is_by_rank_in_a_stage_stays_by_rank():
    """Under the rank's number, as anywhere, with bytes of that rank alone; a part of none is told."""
    sources = [{"s": Stage({"p": PerRank(torch.tensor(n))}, ranks=[0, 1])} for n in range(2)]
    for rank, source in enumerate(sources):
        (piece,) = flatten(source, rank=rank, world=2).pieces
        assert (piece.path, piece.replicas) == (f"s/p/{rank}", (rank,))
        (entry,) = (e for e in flatten(source, rank=rank, world=2).entries if isinstance(e, Tensor))
        assert entry.layout is None
    lives = [{"s": Stage({"p": PerRank(torch.tensor(9))}, ranks=[0, 1, 2])} for _ in range(3)]
    coverages = restored_by(sources, lives)
    assert [int(live["s"].value["p"].value) for live in lives] == [0, 1, 9]
    assert [coverage.resized for coverage in coverages] == [(), (), ("s/p",)]


def test_replicas_of_a_stage_describe_it_alike():
    """So that their entries are one."""
    state = {"m": Stage(layers(0), ranks=(2, 0))}
    assert flatten(state, rank=0, world=3).entries == flatten(state, rank=2, world=3).entries
    entries, _ = saved_by({"m": Stage(layers(0), ranks=(0, 1))}, {"m": Stage(layers(0), ranks=(0, 1))})
    assert [e.path for e in entries] == ["", "m", "m/0.weight", "m/0.bias"]


@pytest.mark.parametrize("ranks", ["01", [], [0.5], [-1], 3, [True]])
def test_ranks_that_are_none_are_refused(ranks):
    """At once."""
    with pytest.raises(UsageError, match="the numbers of the ranks that hold the same stage"):
        Stage({}, ranks=ranks)


def test_ranks_that_cannot_be_are_refused_by_path():
    """Without this one; beyond the world; beyond those of the stage around."""
    with pytest.raises(UsageError, match=r"m is a Stage of ranks \(0, 2\), and this is rank 1"):
        flatten({"m": Stage({}, ranks=[0, 2])}, rank=1, world=3)
    with pytest.raises(UsageError, match=r"m is a Stage of ranks \(1, 3\), and there are 3 ranks"):
        flatten({"m": Stage({}, ranks=[1, 3])}, rank=1, world=3)
    with pytest.raises(UsageError, match=r"m/n is a Stage of ranks \(0, 1\) inside one of ranks \(1,\)"):
        flatten({"m": Stage({"n": Stage({}, ranks=[0, 1])})}, rank=1, world=3)


@pytest.mark.parametrize("value", [[1], torch.ones(2), 5, PerRank({})])
def test_a_part_without_names_is_refused(value):
    """Leaves of several ranks are told apart by name."""
    with pytest.raises(UnsupportedLeaf, match="a Stage is of a module, an optimizer"):
        flatten({"s": Stage(value)})


def test_a_stage_in_the_state_of_an_object_is_refused():
    """It would get plain data in its place."""
    with pytest.raises(UnsupportedLeaf, match=r"o/s is of type .* it is inside the state of"):
        flatten({"o": Holder()})


def test_a_stage_in_what_is_by_rank_is_refused():
    """Each rank has its own there already."""
    with pytest.raises(UnsupportedLeaf, match="it is inside PerRank"):
        flatten({"p": PerRank({"s": Stage({})})})
    with pytest.raises(RestoreMismatch, match=r"s/0.weight has shape \[1, 2\]"):
        match({"s": Stage(layers(0))}, flatten({"s": {"0.weight": torch.ones(3), "0.bias": 1}}).entries)
