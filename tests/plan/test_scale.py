"""What many ranks cost: the simulation of the bench, small, with sizes counted."""

import pytest

from bench.planning import meshes, ours


@pytest.mark.parametrize("name", ["FSDP", "HSDP", "FSDP+TP"])
def test_sizes_do_not_multiply(name):
    """The manifest grows with tensors plus ranks, not with their product; what a rank tells, with its packs."""
    found = ours(64, 30, *meshes(64)[name])
    assert found["manifest"] <= 1000 + 300 * 30 + 300 * 64
    assert found["word"] <= 2000
    many = ours(128, 30, *meshes(128)[name])
    assert many["manifest"] - found["manifest"] <= 300 * (128 - 64)
    assert many["word"] <= 2000


def test_a_share_comes_from_its_few_writers():
    """A rank that wants its own share reads its own index, or those of the ranks that keep the same."""
    found = {name: ours(64, 60, *how)["indexes read"] for name, how in meshes(64).items()}
    assert found == {"FSDP": 1, "HSDP": 2, "FSDP+TP": 2}
