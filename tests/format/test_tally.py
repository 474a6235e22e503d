"""The sums by which boxes are seen to make up tensors."""

from __future__ import annotations

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.format.box import Box
from everstep.format.entries import Tensor
from everstep.format.index import Shard
from everstep.format.layouts import make_layout, parts, ranks_of
from everstep.format.tally import added, box_tally, tally, whole


def shard(path, box):
    """A box of a tensor; its bytes do not matter here."""
    return Shard(path=path, offsets=box.offsets, sizes=box.sizes, chunks=())


@st.composite
def cut(draw):
    """A tensor and the boxes of its layout, each once."""
    mesh = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    shape = tuple(draw(st.lists(st.integers(0, 9), min_size=1, max_size=3)))
    placement = st.sampled_from(["replicate", *(f"shard:{d}" for d in range(len(shape)))])
    placements = draw(st.lists(placement, min_size=len(mesh), max_size=len(mesh)))
    layout = make_layout(shape=mesh, ranks=range(math.prod(mesh)), placements=placements)
    boxes = {part.box for rank in ranks_of(layout) for part in parts(layout, shape, rank)}
    return Tensor(path="w", dtype="int8", shape=shape, framework="torch", layout=layout), sorted(boxes)


@given(st.data())
def test_a_box_has_its_elements_and_their_numbers(data):
    """By the formula as by counting."""
    shape = tuple(data.draw(st.lists(st.integers(1, 5), max_size=3)))
    offsets = tuple(data.draw(st.integers(0, n - 1)) for n in shape)
    sizes = tuple(data.draw(st.integers(0, n - at)) for n, at in zip(shape, offsets, strict=True))
    numbers = [
        sum(i * math.prod(shape[d + 1 :]) for d, i in enumerate(at))
        for at in product(*(range(a, a + n) for a, n in zip(offsets, sizes, strict=True)))
    ]
    assert box_tally(shape, offsets, sizes) == (len(numbers), 2 * sum(numbers))


@given(cut())
def test_the_boxes_of_a_layout_add_up_to_the_whole(found):
    """However they are dealt to ranks; one too few or twice does not."""
    tensor, boxes = found
    entries = {"w": tensor}
    parts = [tally([shard("w", box)], entries) for box in boxes]
    assert added(parts) == whole([tensor]) == tally([shard("w", box) for box in boxes], entries)
    for part in parts:
        assert added([*parts, part]) != whole([tensor])


@pytest.mark.parametrize("wrong", [[0, 0, 2], [0, 1], [0, 1, 1], [0, 1, 2, 2], [1, 1, 2]])
def test_one_box_in_the_place_of_another_is_seen(wrong):
    """Though the number of elements is right."""
    tensor = Tensor(path="w", dtype="int8", shape=(6, 2), framework="torch")
    shards = [shard("w", Box((2 * n, 0), (2, 2))) for n in wrong]
    assert tally(shards, {"w": tensor}) != whole([tensor])


def test_a_leaf_too_much_does_not_make_up_for_another():
    """Two leaves of one shape, one of them written twice: weights by path tell them apart."""
    tensors = {path: Tensor(path=path, dtype="int8", shape=(4,), framework="torch") for path in "ab"}
    box = Box.whole((4,))
    assert tally([shard("a", box), shard("b", box)], tensors) == whole(tensors.values())
    assert tally([shard("a", box), shard("a", box)], tensors) != whole(tensors.values())
