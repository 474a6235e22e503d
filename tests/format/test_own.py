"""What is a rank's own, and what all ranks have alike."""

from __future__ import annotations

from everstep.format.entries import Alias, Container, Tensor, Value
from everstep.format.own import own_entries, own_roots, shared_entries

ENTRIES = (
    Container(path="", type="dict", keys=["model", "modelx", "rng", "step"]),
    Container(path="model", type="stage", keys=["a"], name="Net"),
    Container(path="model/a", type="per_rank", keys=[1]),
    Value(path="model/a/1", value=1),
    Tensor(path="modelx", dtype="int8", shape=(1,), framework="torch"),
    Container(path="rng", type="per_rank", keys=[1]),
    Container(path="rng/1", type="dict", keys=["deep"]),
    Alias(path="rng/1/deep", of="modelx"),
    Value(path="step", value=3),
)


def test_the_lists_part_at_the_outermost_containers():
    """A rank's own: they and all below. Shared: all else, and that they are there."""
    assert [entry.path for entry in own_entries(ENTRIES)] == [
        "model",
        "model/a",
        "model/a/1",
        "rng",
        "rng/1",
        "rng/1/deep",
    ]
    assert [entry.path for entry in shared_entries(ENTRIES)] == ["", "model", "modelx", "rng", "step"]
    assert own_roots(ENTRIES) == {"model": "stage", "rng": "per_rank"}


def test_what_is_shared_does_not_tell_ranks_apart():
    """Neither keys nor class names of a rank's own containers are in it."""
    assert shared_entries(ENTRIES)[1] == Container(path="model", type="stage")
    assert shared_entries(ENTRIES)[3] == Container(path="rng", type="per_rank")


def test_a_state_that_is_a_ranks_own_as_a_whole():
    """Its root is the one container."""
    entries = (Container(path="", type="stage", keys=["a"]), Value(path="a", value=1))
    assert own_entries(entries) == entries
    assert shared_entries(entries) == (Container(path="", type="stage"),)
