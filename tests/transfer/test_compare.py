"""Two checkpoints leaf by leaf, equal to the bit or not."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import everstep as es
from everstep.format.dtypes import ITEM_BYTES
from everstep.repository.opening import open_repository
from everstep.store.count import Count
from everstep.store.memory import MemoryStore
from everstep.transfer.compare import Change, compare
from everstep.transfer.contents import Contents, slabs
from everstep.transfer.select import selects


def compared(a, b):
    """Two states saved in stores of their own, and compared."""
    sides = []
    for state in (a, b):
        store = MemoryStore()
        with es.Checkpointer(store, "r") as ckpt:
            ckpt.save(1, state).wait()
            repository = open_repository(store, create=False)
            sides.append(Contents(repository, ckpt.latest()))
    return compare(*sides)


def by_path(comparison):
    """The differences, by path."""
    return {one.path: one for one in comparison.differences}


def test_equal_states_of_two_stores_are_equal_by_digest_alone():
    """Nothing is read but records."""
    found = compared({"w": torch.ones(1000), "n": 1}, {"w": torch.ones(1000), "n": 1})
    assert found.equal
    assert found.bytes_read == 0
    assert found.leaves == 2


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        ("1", 1),
        ((1, 2), [1, 2]),
        (None, False),
        (b"a", "a"),
        ({1}, frozenset({1})),
    ],
)
def test_values_that_python_calls_equal_may_differ(a, b):
    """Type and bits count."""
    assert set(by_path(compared({"x": a}, {"x": b}))) >= {"x"}


def test_nan_is_equal_to_the_same_nan():
    """In plain values and in tensors."""
    state = {"x": math.nan, "w": torch.tensor([math.nan, 1.0])}
    assert compared(state, {"x": math.nan, "w": torch.tensor([math.nan, 1.0])}).equal


def test_nan_with_other_bits_is_another():
    """Equality is of bits; the counts say that both are NaN."""
    a, b = np.array([np.nan], np.float32), np.array([0x7FC00001], np.uint32).view(np.float32)
    one = by_path(compared({"w": a}, {"w": b}))["w"]
    assert (one.nan_a, one.nan_b) == (1, 1)
    assert one.bytes_changed == 1
    assert one.relative == 0.0


def test_minus_zero_in_a_tensor_is_a_difference_of_no_size():
    """One bit, and nothing in numbers."""
    one = by_path(compared({"w": torch.tensor([0.0])}, {"w": torch.tensor([-0.0])}))["w"]
    assert (one.relative, one.max_abs, one.bytes_changed) == (0.0, 0.0, 1)


def test_relative_change_is_the_norm_of_the_difference_over_the_norm_of_a():
    """As NumPy computes it."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((30, 7))
    b = a + rng.standard_normal((30, 7)) / 100
    one = by_path(compared({"w": a}, {"w": b}))["w"]
    assert one.relative == pytest.approx(np.linalg.norm(b - a) / np.linalg.norm(a), rel=1e-12)
    assert one.max_abs == pytest.approx(np.abs(b - a).max(), rel=1e-12)
    assert one.bytes_changed == np.count_nonzero(a.view(np.uint8) != b.view(np.uint8))


def test_a_change_from_zero_is_infinite():
    """There is nothing to relate it to."""
    assert by_path(compared({"w": torch.zeros(2)}, {"w": torch.ones(2)}))["w"].relative == math.inf


def test_another_shape_has_no_numbers():
    """Only what it is on both sides."""
    one = by_path(compared({"w": torch.zeros(2, 3)}, {"w": torch.zeros(3, 2)}))["w"]
    assert (one.a, one.b) == ("float32[2, 3]", "float32[3, 2]")
    assert one.relative is None
    assert one.bytes_changed == 24


def test_another_dtype_is_compared_as_numbers():
    """Half precision of the same weights is near, and all bytes are others."""
    a = torch.linspace(-1, 1, 100)
    one = by_path(compared({"w": a}, {"w": a.to(torch.bfloat16)}))["w"]
    assert 0 < one.relative < 0.01
    assert one.bytes_changed == 200


def test_leaves_that_came_and_went():
    """Told as added and removed, with their size."""
    found = by_path(compared({"a": torch.zeros(4), "x": 1}, {"b": torch.zeros(4), "x": 1}))
    assert found["a"].change is Change.REMOVED
    assert found["b"].change is Change.ADDED
    assert (found["a"].bytes_a, found["b"].bytes_b) == (16, 16)


def test_a_value_that_became_a_tensor_is_of_another_kind():
    """And so is a tensor that is tied on one side only."""
    assert by_path(compared({"x": 1}, {"x": torch.tensor(1)}))["x"].change is Change.KIND
    w = torch.ones(3)
    found = by_path(compared({"a": w, "b": w}, {"a": w, "b": w.clone()}))
    assert found["b"].change is Change.KIND
    assert found["b"].a == "tied to a"


def test_the_same_bits_in_another_framework_are_another_kind():
    """A NumPy array is no torch tensor."""
    one = by_path(compared({"w": np.ones(2, np.float32)}, {"w": torch.ones(2)}))["w"]
    assert one.change is Change.KIND
    assert one.bytes_changed == 0
    assert one.a.startswith("numpy")


def test_infinities_are_left_out_of_the_numbers():
    """The rest is still measured."""
    a, b = torch.tensor([1.0, math.inf, 2.0]), torch.tensor([1.0, 5.0, 3.0])
    one = by_path(compared({"w": a}, {"w": b}))["w"]
    assert one.max_abs == 1.0
    assert one.relative == pytest.approx(1 / math.sqrt(5))


def test_only_what_differs_is_read():
    """An embedding of a megabyte that did not change costs no byte."""
    store = Count(MemoryStore())
    frozen = torch.zeros(250_000)
    with es.Checkpointer(store, "r") as ckpt:
        for step in (1, 2):
            ckpt.save(step, {"frozen": frozen, "w": torch.full((10,), float(step))}).wait()
        a, b = (Contents(open_repository(store, create=False), one) for one in ckpt.checkpoints())
        before = store.bytes_in
        found = compare(a, b)
    assert found.bytes_read == 80
    assert store.bytes_in - before < 50_000


def test_a_tensor_larger_than_a_batch_is_compared_in_parts(monkeypatch):
    """Parts give the same answer as the whole."""
    monkeypatch.setattr("everstep.transfer.compare._BATCH_BYTES", 1000)
    monkeypatch.setattr("everstep.transfer.compare._BLOCK_BYTES", 64)
    rng = np.random.default_rng(0)
    a = {name: rng.standard_normal((13, 17)) for name in "xyz"}
    b = {name: array + (name != "y") for name, array in a.items()}
    found = by_path(compared(a, b))
    assert set(found) == {"x", "z"}
    assert found["x"].relative == pytest.approx(np.linalg.norm(b["x"] - a["x"]) / np.linalg.norm(a["x"]))


@given(st.lists(st.integers(0, 5), max_size=4).map(tuple), st.sampled_from([1, 2, 4, 8]), st.integers(8, 200))
def test_slabs_cover_every_element_once_in_order(shape, item, most):
    """Contiguous, at most so long, one after another."""
    numbers = np.arange(math.prod(shape)).reshape(shape)
    parts = []
    for box in slabs(shape, item, most):
        part = numbers[tuple(slice(o, o + n) for o, n in zip(box.offsets, box.sizes, strict=True))]
        assert part.size * item <= most
        parts.append(part.reshape(-1))
    joined = np.concatenate(parts) if parts else np.array([])
    np.testing.assert_array_equal(joined, numbers.reshape(-1))


@pytest.mark.parametrize(
    ("patterns", "path", "meant"),
    [
        ((), "a/b", True),
        (("a",), "a/b", True),
        (("a/",), "a/b", True),
        (("a",), "ab", False),
        (("a/b",), "a", False),
        (("*/b",), "a/b", True),
        (("*b",), "a/c/b", True),
        (("x", "a"), "a", True),
        (("[a]",), "a", True),
    ],
)
def test_a_pattern_is_a_path_with_all_beneath_or_a_shell_pattern(patterns, path, meant):
    """Whole paths only."""
    assert selects(patterns, path) is meant


def test_every_type_has_a_size_to_cut_by():
    """What can be stored can be compared."""
    assert all(size > 0 for size in ITEM_BYTES.values())
