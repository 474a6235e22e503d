"""Layouts: which boxes ranks hold, as torch cuts tensors, and who holds a box."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import _StridedShard

from everstep.format import layouts as layouts_room
from everstep.format.box import Box
from everstep.format.layouts import (
    _cut,
    holders,
    last_rank,
    local_shape,
    make_layout,
    parts,
    ranks_of,
    sharers,
)


def torchs(placement):
    """The placement as torch has it."""
    kind, *numbers = placement.split(":")
    if kind == "replicate":
        return Replicate()
    return (
        Shard(int(numbers[0]))
        if kind == "shard"
        else _StridedShard(int(numbers[0]), split_factor=int(numbers[1]))
    )


def share(extent, cuts):
    """The elements of a dimension that a coordinate gets, by torch's own cutting; cuts are (placement, size, at)."""
    found = torch.arange(extent)
    for placement, size, at in cuts:
        factor = getattr(placement, "split_factor", None)
        alone = Shard(0) if factor is None else _StridedShard(0, split_factor=factor)
        found = alone._split_tensor(found, size, with_padding=False)[0][at]
    return found.tolist()


def held(layout, shape, coordinate):
    """For each dimension the elements of the local tensor at a coordinate."""
    placements = [torchs(p) for p in layout.placements]
    cuts = list(zip(placements, layout.shape, coordinate, strict=True))
    return [
        share(extent, [cut for cut in cuts if not isinstance(cut[0], Replicate) and cut[0].dim == d])
        for d, extent in enumerate(shape)
    ]


@st.composite
def layouts(draw):
    """A layout on a mesh of one to three dimensions, and the shape of a tensor."""
    shape = tuple(draw(st.lists(st.integers(0, 13), min_size=1, max_size=3)))
    mesh = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    dims = st.integers(0, len(shape) - 1)
    placement = st.one_of(
        st.just("replicate"),
        dims.map(lambda d: f"shard:{d}"),
        st.tuples(dims, st.integers(1, 5)).map(lambda p: f"strided:{p[0]}:{p[1]}"),
    )
    placements = draw(st.lists(placement, min_size=len(mesh), max_size=len(mesh)))
    ranks = list(range(draw(st.integers(0, 3)), 200))[:: draw(st.integers(1, 3))][: math.prod(mesh)]
    if draw(st.booleans()):
        ranks = draw(st.permutations(ranks))
    return make_layout(shape=mesh, ranks=ranks, placements=placements), shape


@settings(max_examples=300, deadline=None)
@given(case=layouts())
def test_parts_are_the_elements_that_torch_gives_each_rank(case):
    """Each element of a local tensor, and no other, is in one part, at its place; shape and offset are torch's."""
    layout, shape = case
    for number, coordinate in enumerate(product(*map(range, layout.shape))):
        elements = held(layout, shape, coordinate)
        inside = product(*[range(len(each)) for each in elements])
        local = dict(zip(inside, product(*elements), strict=True))
        found = {}
        for part in parts(layout, shape, ranks_of(layout)[number]):
            assert part.coordinate == number
            assert part.box.elements > 0
            for inside in product(*map(range, part.box.sizes)):
                at = tuple(a + n for a, n in zip(part.at, inside, strict=True))
                assert at not in found
                found[at] = tuple(o + n for o, n in zip(part.box.offsets, inside, strict=True))
        assert found == local
        size, offset = _compute_local_shape_and_global_offset(
            shape, layout.shape, list(coordinate), [torchs(p) for p in layout.placements]
        )
        assert local_shape(layout, shape, number) == size
        if found:
            assert min(found.values()) == offset


@settings(max_examples=200, deadline=None)
@given(case=layouts())
def test_parts_of_all_ranks_tile_the_tensor_once_among_replicas(case):
    """Of each group of sharers one rank's parts are taken: every element is there just once."""
    layout, shape = case
    seen = set()
    count = 0
    for rank in sorted(set(ranks_of(layout))):
        group = sharers(layout, rank)
        assert rank in group
        assert list(group) == sorted(set(group))
        assert all(sharers(layout, other) == group for other in group)
        mine = [part.box for part in parts(layout, shape, rank)]
        assert all([part.box for part in parts(layout, shape, other)] == mine for other in group)
        if rank == group[0]:
            for box in mine:
                elements = set(
                    product(*[range(o, o + n) for o, n in zip(box.offsets, box.sizes, strict=True)])
                )
                count += len(elements)
                seen |= elements
    assert count == len(seen) == math.prod(shape)


@settings(max_examples=300, deadline=None)
@given(case=layouts(), data=st.data())
def test_holders_are_all_who_hold_an_element_of_the_box(case, data):
    """What arithmetic finds is what asking every rank finds, each box once."""
    layout, shape = case
    offsets = [data.draw(st.integers(0, extent)) for extent in shape]
    sizes = [data.draw(st.integers(0, extent - o)) for extent, o in zip(shape, offsets, strict=True)]
    box = Box(tuple(offsets), tuple(sizes))
    found = list(holders(layout, shape, box))
    assert len({held for _, held in found}) == len(found)
    expected = set()
    for rank in set(ranks_of(layout)):
        for part in parts(layout, shape, rank):
            if 0 not in box.sizes and part.box.intersect(box):
                expected.add((sharers(layout, rank), part.box))
    assert set(found) == expected


def test_who_holds_only_elements_of_parts_in_the_middle_is_found():
    """Of three strided parts the box has a piece of the first, all of the second, and the short last one."""
    layout = make_layout(shape=(3,), ranks=range(3), placements=["strided:0:3"])
    found = {ranks: box for ranks, box in holders(layout, (7,), Box((2,), (5,))) if ranks == (1,)}
    assert found == {(1,): Box((4,), (1,))}


def test_a_rank_with_several_devices_has_the_boxes_of_all_of_them_once():
    """jax: two processes of two devices; the boxes of each coordinate have sharers of their own."""
    layout = make_layout(shape=(2, 2), ranks=[0, 1, 0, 0], placements=["shard:0", "replicate"])
    assert [(part.box.offsets, part.coordinate) for part in parts(layout, (4,), 0)] == [((0,), 0), ((2,), 2)]
    assert [part.box.offsets for part in parts(layout, (4,), 1)] == [(0,)]
    assert sharers(layout, 0) == sharers(layout, 0, 0) == sharers(layout, 1) == (0, 1)
    assert sharers(layout, 0, 2) == (0,)
    assert list(holders(layout, (4,), Box((1,), (2,)))) == [
        ((0, 1), Box((0,), (2,))),
        ((0,), Box((2,), (2,))),
    ]


@pytest.mark.parametrize(
    ("shape", "ranks", "start", "strides"),
    [
        ((2, 4), range(8), 0, ()),
        ((4,), [1, 3, 5, 7], 1, (2,)),
        ((2, 2), [0, 2, 1, 3], 0, (1, 2)),
        ((2, 4), [0, 0, 0, 0, 1, 1, 1, 1], 0, (1, 0)),
        ((1, 3), [5, 6, 7], 5, ()),
        ((3,), [4, 4, 4], 4, (0,)),
        ((3, 1), [4, 6, 8], 4, (2, 0)),
    ],
)
def test_a_regular_mesh_is_told_by_its_strides(shape, ranks, start, strides):
    """No list of ranks stands in the manifest for it."""
    layout = make_layout(shape=shape, ranks=list(ranks), placements=["replicate"] * len(shape))
    assert (layout.start, layout.strides, layout.ranks) == (start, strides, ())
    assert ranks_of(layout) == tuple(ranks)
    assert last_rank(layout) == max(ranks)


@pytest.mark.parametrize("ranks", [[0, 1, 3, 2], [3, 2, 1, 0], [0, 0, 0, 1]])
def test_another_mesh_lists_its_ranks(ranks):
    """In row-major order."""
    layout = make_layout(shape=(2, 2), ranks=ranks, placements=["replicate"] * 2)
    assert layout.ranks == ranks_of(layout) == tuple(ranks)
    assert last_rank(layout) == max(ranks)


@pytest.mark.parametrize("ranks", [range(4), [0, 3, 1, 2]])
def test_a_rank_outside_the_mesh_holds_nothing(ranks):
    """Neither boxes nor company."""
    layout = make_layout(shape=(4,), ranks=list(ranks), placements=["shard:0"])
    assert parts(layout, (8,), 9) == ()
    assert sharers(layout, 9) == ()


def test_numbers_that_do_not_fit_the_mesh_are_refused():
    """A slip of a caller."""
    with pytest.raises(ValueError, match="3 ranks"):
        make_layout(shape=(2, 2), ranks=[0, 1, 2], placements=["replicate"] * 2)
    with pytest.raises(ValueError, match="1 placements"):
        make_layout(shape=(2, 1), ranks=[0, 1], placements=["replicate"])
    with pytest.raises(ValueError, match="names"):
        make_layout(shape=(2,), ranks=[0, 1], placements=["replicate"], names=["a", "b"])


@pytest.mark.parametrize(
    ("mesh", "placements"),
    [((2048,), ["shard:0"]), ((256, 8), ["strided:0:8", "shard:0"]), ((2, 1024), ["replicate", "shard:0"])],
)
def test_a_small_box_of_a_large_mesh_is_found_without_walking_it(mesh, placements, monkeypatch):
    """The shares of a few coordinates are computed, of 2,048."""
    cuts = []
    monkeypatch.setattr(layouts_room, "_cut", lambda *args: cuts.append(args) or _cut(*args))
    layout = make_layout(shape=mesh, ranks=range(2048), placements=placements)
    found = list(holders(layout, (2**20 + 17, 64), Box((12345, 0), (512, 64))))
    assert 1 <= len(found) <= 3
    assert len(cuts) <= 5
