"""Stages, values by rank, ties, arrays of NumPy and of jax, on other numbers of ranks."""

import torch

import everstep as es
from tests.checkpointer.launches import told, told_by_each
from tests.checkpointer.rank_parts import layer, whole
from tests.jax_world import in_ranks

HERE = "tests.checkpointer.rank_parts"


def test_parts_on_two_one_two_and_four_ranks(zygote, tmp_path):
    """A pipeline of two stages goes to one and back to two, then to two ranks for each; values by rank take their
    own, keep what they have beyond the saved ranks, or are what ``resize`` makes of all.
    """
    folder = str(tmp_path / "store")
    assert told(zygote, f"{HERE}:again", folder, 2, world=2) == [[None, []]]
    assert told(zygote, f"{HERE}:again", folder, 1, world=1) == [
        [1, []],
        [True, True, True, True, ["loader", "mine"]],
        [{"rank": 0, "seed": 1}, 12],
    ]
    two = told_by_each(zygote, f"{HERE}:again", folder, 2, world=2)
    for rank, words in enumerate(two):
        assert words == [[2, []], [True, True, True, True, []], [{"rank": rank, "seed": 1}, 10 * rank + 1]]
    four = told_by_each(zygote, f"{HERE}:again", folder, 2, world=4)
    for rank, words in enumerate(four):
        own = {"rank": rank, "seed": 1 if rank < 2 else 50}
        assert words == [[3, []], [True, True, True, True, ["loader", "mine"]], [own, 3]]
    assert told(zygote, f"{HERE}:arrays", folder, world=1) == [[True, True]]
    assert told(zygote, f"{HERE}:arrays", folder, world=2) == [[True, True]]

    state = es.load(folder, "stages")
    for n in range(4):
        for name, due in layer(n, 4).named_parameters():
            assert torch.equal(state["model"][f"{n}.{name}"], due)
    state = es.load(folder, "parts")
    assert torch.equal(state["rows"], whole(1))
    assert state["tied"] is state["rows"]
    assert state["mine"] == {0: {"rank": 0, "seed": 1}, 1: {"rank": 1, "seed": 1}}
    assert state["loader"] == {0: {"given": 1}, 1: {"given": 11}}


def test_from_jax_to_torch(zygote, tmp_path):
    """Two processes of jax save, ranks of torch go on."""
    folder = str(tmp_path / "store")
    in_ranks("tests.checkpointer.jax_ranks:save_plain", folder, ranks=2, devices=2, folder=tmp_path)
    for world in (1, 3):
        assert told(zygote, f"{HERE}:from_jax", folder, world=world) == [[True, True, True]]
