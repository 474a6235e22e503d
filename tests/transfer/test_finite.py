"""NaN and infinities in what was staged, found by path."""

import ml_dtypes
import numpy as np
import pytest

from everstep.format.box import Box
from everstep.format.entries import Tensor
from everstep.state.flat import Flat, Piece
from everstep.transfer.finite import not_finite
from tests.transfer.made import ArraySource, flat_of, staged_of

BAD = (np.nan, np.inf, -np.inf)


def staged(arrays, **options):
    """Arrays of any element type, staged."""
    entries = tuple(
        Tensor(path=p, dtype=str(a.dtype), shape=a.shape, framework="numpy") for p, a in arrays.items()
    )
    pieces = tuple(
        Piece(path=p, dtype=str(a.dtype), box=Box.whole(a.shape), nbytes=a.nbytes, source=ArraySource(a))
        for p, a in arrays.items()
    )
    return staged_of(Flat(entries=entries, pieces=pieces, synchronize=lambda: None), **options)


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "complex64", "complex128", ml_dtypes.bfloat16]
)
def test_one_bad_element_names_its_leaf(dtype, bad):
    """Wherever it is; leaves beside it are not named."""
    good = np.linspace(-3, 3, 1000).astype(dtype)
    for at in (0, 500, 999):
        broken = good.copy()
        broken[at] = bad
        assert not_finite(staged({"a": good, "b": broken, "c": good})) == ("b",)


def test_the_imaginary_part_counts():
    """A complex number is two."""
    assert not_finite(staged({"z": np.array([1 + 1j, complex(0, np.nan)])})) == ("z",)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_small_floats_have_nan_too(dtype):
    """Of eight bits; the largest finite ones are finite."""
    kind = getattr(ml_dtypes, dtype)
    high = np.array([ml_dtypes.finfo(kind).max, ml_dtypes.finfo(kind).min, 0]).astype(kind)
    broken = np.array([0, np.nan, 1]).astype(kind)
    assert not_finite(staged({"high": high, "broken": broken})) == ("broken",)


def test_largest_values_and_denormals_are_finite():
    """The edge of the range is in it."""
    arrays = {
        name: np.array([np.finfo(name).max, np.finfo(name).min, np.finfo(name).tiny / 2, -0.0]).astype(name)
        for name in ("float16", "float32", "float64")
    }
    half = ml_dtypes.finfo(ml_dtypes.bfloat16)
    arrays["bfloat16"] = np.array([half.max, half.min, half.tiny]).astype(ml_dtypes.bfloat16)
    assert not_finite(staged(arrays)) == ()


def test_other_types_are_never_named():
    """All bits set is -1 for an integer, and no time for a date."""
    ones = np.full(64, 0xFF, np.uint8)
    arrays = {
        "int32": ones.view(np.int32), "uint16": ones.view(np.uint16), "bool": np.ones(8, bool),
    }  # fmt: skip
    assert not_finite(staged(arrays)) == ()


@pytest.mark.parametrize("chunk_bytes", [2**20, 2**22])
@pytest.mark.parametrize("at", [0, 262_143, 262_144, 700_000, 999_999])
def test_a_leaf_of_many_blocks_and_packs_is_named_once(at, chunk_bytes):
    """Blocks, chunks and packs end where they like."""
    values = np.ones(1_000_000, np.float32)
    values[at] = np.nan
    made = staged({"a": np.ones(3), "w": values}, chunk_bytes=chunk_bytes, pack_bytes=2**21)
    assert len(made.packs) > 1
    assert not_finite(made) == ("w",)
    values[:] = np.inf
    assert not_finite(staged({"w": values}, chunk_bytes=chunk_bytes, pack_bytes=2**21)) == ("w",)


def test_paths_come_in_order_and_nothing_is_no_finding():
    """Empty and 0-d leaves too."""
    flat = flat_of({"n": np.float64(np.nan), "e": np.zeros((0, 3)), "a": np.array([np.inf])})
    assert not_finite(staged_of(flat)) == ("n", "a")
    assert not_finite(staged_of(flat_of({}))) == ()
