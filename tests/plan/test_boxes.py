"""Row-major arithmetic against brute force."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from everstep.format.box import Box
from everstep.plan.boxes import affine_shift, first_inside, flat_index, slabs

shapes = st.lists(st.integers(1, 5), max_size=4).map(tuple)


@st.composite
def shape_and_boxes(draw, count=1):
    """A shape, and boxes inside it."""
    shape = draw(shapes)
    boxes = []
    for _ in range(count):
        offsets = tuple(draw(st.integers(0, n - 1)) for n in shape)
        sizes = tuple(draw(st.integers(1, n - o)) for n, o in zip(shape, offsets, strict=True))
        boxes.append(Box(offsets, sizes))
    return shape, *boxes


def elements(box):
    """The places of a box's elements, in row-major order."""
    return list(itertools.product(*(range(o, o + n) for o, n in zip(box.offsets, box.sizes, strict=True))))


@given(shape_and_boxes(), st.integers(0, 700))
def test_first_inside(case, start):
    """The first element of a box at or after a number is the one that a search finds."""
    shape, box = case
    numbers = sorted(flat_index(shape, e) for e in elements(box))
    assert first_inside(shape, box, start) == next((n for n in numbers if n >= start), None)


@given(shape_and_boxes(), st.data())
def test_slabs(case, data):
    """Slabs are contiguous, in order, and together exactly the range."""
    shape, _ = case
    total = len(elements(Box.whole(shape)))
    start = data.draw(st.integers(0, total))
    end = data.draw(st.integers(start, total))
    covered = []
    for box, first in slabs(shape, start, end):
        numbers = [flat_index(shape, e) for e in elements(box)]
        assert numbers == list(range(first, first + box.elements))
        covered += numbers
    assert covered == list(range(start, end))
    assert len(slabs(shape, start, end)) <= max(1, 2 * len(shape) + 1)


@given(shape_and_boxes(2))
def test_affine_shift(case):
    """Where a shift is given it carries every shared element over, and nothing else in range."""
    _, shard, wanted = case
    shift = affine_shift(shard, wanted)
    if shift is None or shard.intersect(wanted) is None:
        return
    shards, wants = elements(shard), elements(wanted)
    for n, element in enumerate(shards):
        assert (element in wants) == (0 <= n + shift < len(wants))
        if element in wants:
            assert wants.index(element) == n + shift


@given(shape_and_boxes())
def test_affine_shift_of_itself(case):
    """A box lies in itself without a shift."""
    _, box = case
    assert affine_shift(box, box) == 0
