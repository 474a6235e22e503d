"""Stored bytes as numbers, against the library that defines the types."""

import ml_dtypes
import numpy as np
import pytest

from everstep.transfer.numbers import as_numbers

SMALL = [
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e4m3", "float8_e3m4",
    "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
]  # fmt: skip


@pytest.mark.parametrize("dtype", SMALL)
def test_every_pattern_of_the_small_floats(dtype):
    """All 256 patterns, NaN and infinities included."""
    patterns = np.arange(256, dtype=np.uint8)
    want = patterns.view(getattr(ml_dtypes, dtype)).astype(np.float64)
    np.testing.assert_array_equal(as_numbers(memoryview(patterns.tobytes()), dtype), want)


def test_every_bfloat16():
    """All 65,536 patterns."""
    patterns = np.arange(2**16, dtype=np.uint16)
    with np.errstate(invalid="ignore"):
        want = patterns.view(ml_dtypes.bfloat16).astype(np.float64)
    np.testing.assert_array_equal(as_numbers(memoryview(patterns.tobytes()), "bfloat16"), want)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint16", "int64", "float16", "float32", "float64", "complex64"]
)
def test_types_that_numpy_has(dtype):
    """Little-endian, as stored."""
    values = np.array([0, 1, 1, 0]).astype(dtype)
    np.testing.assert_array_equal(as_numbers(memoryview(values.tobytes()), dtype), values)


@pytest.mark.parametrize("dtype", ["int4", "datetime64", "float128"])
def test_other_types_are_compared_by_bytes_only(dtype):
    """None says so."""
    assert as_numbers(memoryview(bytes(32)), dtype) is None
