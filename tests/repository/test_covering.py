"""Boxes that make up a tensor, and those that do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.errors import DisagreeingPlans
from everstep.format.box import Box
from everstep.format.entries import Tensor
from everstep.format.records import PlanRecord
from everstep.repository.covering import check_boxes

PLAN = PlanRecord(
    format=1, run="run", save="s" + "0" * 16 + "-a" + "0" * 8 + "-" + "0" * 32, world=9, created=1.0
)


def check(shape, boxes):
    """The check of boxes, each written by the rank of its number."""
    tensor = Tensor(path="w", dtype="uint8", shape=shape, framework="torch")
    told: dict[Box, dict[str, list[int]]] = {}
    for rank, box in enumerate(boxes):
        told.setdefault(box, {}).setdefault("same", []).append(rank)
    check_boxes(PLAN, [tensor], {"w": told})


def rectangles(*corners):
    """Boxes of two dimensions, by the first and the last row and column."""
    return [Box((a, c), (b - a, d - c)) for a, b, c, d in corners]


@st.composite
def halved(draw):
    """A tensor cut again and again, somewhere, along some dimension; not always a grid."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    boxes = [Box.whole(shape)]
    for _ in range(draw(st.integers(0, 6))):
        box = boxes.pop(draw(st.integers(0, len(boxes) - 1)))
        d = draw(st.integers(0, len(shape) - 1))
        at = draw(st.integers(0, box.sizes[d]))
        for offset, size in ((0, at), (at, box.sizes[d] - at)):
            offsets = (*box.offsets[:d], box.offsets[d] + offset, *box.offsets[d + 1 :])
            boxes.append(Box(offsets, (*box.sizes[:d], size, *box.sizes[d + 1 :])))
    return shape, draw(st.permutations([box for box in boxes if box.elements]))


@given(halved(), st.data())
def test_boxes_that_make_up_a_tensor_pass_and_no_others(found, data):
    """However it is cut; without one of them, or with another that overlaps, it does not pass."""
    shape, boxes = found
    check(shape, boxes)
    check(shape, [*boxes, boxes[0]])
    with pytest.raises(DisagreeingPlans, match="no rank wrote all of it"):
        check(shape, boxes[1:])
    more = Box.whole(shape) if len(boxes) > 1 else None
    n = data.draw(st.integers(0, len(boxes)))
    if more is not None:
        with pytest.raises(DisagreeingPlans, match="overlap"):
            check(shape, [*boxes[:n], more, *boxes[n:]])


def test_corners_that_look_like_a_grid_are_not_one():
    """Two opposite quarters reach over every row and column, and are half of it."""
    with pytest.raises(DisagreeingPlans, match=r"for instance its \[2:4, 0:2\]"):
        check((4, 4), rectangles((0, 2, 0, 2), (2, 4, 2, 4)))


def test_a_pinwheel_is_no_grid_and_covers():
    """Cells need not lie in rows."""
    check((3, 3), rectangles((0, 1, 0, 2), (0, 2, 2, 3), (2, 3, 1, 3), (1, 3, 0, 1), (1, 2, 1, 2)))


@pytest.mark.parametrize(
    ("boxes", "words"),
    [
        ([], "no rank wrote all of it, for instance its \\[0:4, 0:4\\]"),
        (rectangles((0, 4, 0, 3)), "no rank wrote all of it, for instance its \\[0:4, 3:4\\]"),
        (
            rectangles((0, 3, 0, 4), (2, 4, 0, 4)),
            "rank 0 wrote its \\[0:3, 0:4\\], rank 1 its \\[2:4, 0:4\\]",
        ),
        (rectangles((2, 4, 0, 4), (0, 4, 3, 4), (0, 2, 0, 3)), "overlap"),
    ],
)
def test_what_is_wrong_is_said(boxes, words):
    """What is missing, or which ranks overlap where."""
    with pytest.raises(DisagreeingPlans, match=f"'w' .*{words}") as caught:
        check((4, 4), boxes)
    assert caught.value.fields["path"] == "w"


def test_tensors_without_elements_or_dimensions():
    """Nothing to write is all there; a scalar is one element."""
    check((0, 3), [])
    check((0, 3), [Box((0, 0), (0, 3))])
    check((), [Box((), ())])
    with pytest.raises(DisagreeingPlans, match="no rank wrote"):
        check((), [])
