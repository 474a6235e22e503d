"""Stored bytes as numbers, for comparing: every float type, without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["as_numbers"]

_NATIVE: Final = {
    "bool": "?",
    "uint8": "<u1",
    "uint16": "<u2",
    "uint32": "<u4",
    "uint64": "<u8",
    "int8": "<i1",
    "int16": "<i2",
    "int32": "<i4",
    "int64": "<i8",
    "float16": "<f2",
    "float32": "<f4",
    "float64": "<f8",
    "complex64": "<c8",
    "complex128": "<c16",
    "qint8": "<i1",
    "quint8": "<u1",
    "qint32": "<i4",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Small:
    """An 8-bit float: one sign bit, then exponent and mantissa.

    ``specials`` says which patterns are not numbers: ``ieee`` (the highest exponent is infinity and NaN),
    ``fn`` (all ones is NaN, no infinity), ``fnuz`` (only 0x80 is NaN, no negative zero).
    """

    mantissa: int
    bias: int
    specials: str


_SMALL: Final = {
    "float8_e4m3fn": _Small(mantissa=3, bias=7, specials="fn"),
    "float8_e4m3fnuz": _Small(mantissa=3, bias=8, specials="fnuz"),
    "float8_e4m3b11fnuz": _Small(mantissa=3, bias=11, specials="fnuz"),
    "float8_e4m3": _Small(mantissa=3, bias=7, specials="ieee"),
    "float8_e3m4": _Small(mantissa=4, bias=3, specials="ieee"),
    "float8_e5m2": _Small(mantissa=2, bias=15, specials="ieee"),
    "float8_e5m2fnuz": _Small(mantissa=2, bias=16, specials="fnuz"),
}


def as_numbers(filled: memoryview, dtype: str) -> npt.NDArray[Any] | None:
    """The elements as float64 (complex128 for complex types), flat; None for a type that is compared by bytes only.

    Integers over 2**53 lose their last bits here: bytes decide equality, this decides how far apart.
    """
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one, and stays a NaN
        return _wide(filled, dtype)


def _wide(filled: memoryview, dtype: str) -> npt.NDArray[Any] | None:
    if dtype in _NATIVE:
        elements = np.frombuffer(filled, dtype=_NATIVE[dtype])
        return elements.astype(np.complex128 if elements.dtype.kind == "c" else np.float64)
    if dtype == "bfloat16":
        wide = np.frombuffer(filled, dtype="<u2").astype(np.uint32) << 16
        return wide.view(np.float32).astype(np.float64)
    if dtype == "complex32":
        halves = np.frombuffer(filled, dtype="<f2").astype(np.float64)
        return halves.view(np.complex128)
    if dtype == "float8_e8m0fnu":
        return _powers_of_two()[np.frombuffer(filled, dtype=np.uint8)]
    if dtype in _SMALL:
        return _table(_SMALL[dtype])[np.frombuffer(filled, dtype=np.uint8)]
    return None


def _powers_of_two() -> npt.NDArray[np.float64]:
    values = np.exp2(np.arange(256, dtype=np.float64) - 127)
    values[255] = np.nan
    return values


def _table(kind: _Small) -> npt.NDArray[np.float64]:
    """The value of each of the 256 patterns."""
    patterns = np.arange(256)
    sign = np.where(patterns & 0x80, -1.0, 1.0)
    exponent = (patterns & 0x7F) >> kind.mantissa
    fraction = (patterns & (2**kind.mantissa - 1)) / 2**kind.mantissa
    normal = (1 + fraction) * np.exp2(exponent.astype(np.float64) - kind.bias)
    subnormal = fraction * np.exp2(1.0 - kind.bias)
    values: npt.NDArray[np.float64] = sign * np.where(exponent == 0, subnormal, normal)
    if kind.specials == "fn":
        values[[0x7F, 0xFF]] = np.nan
    elif kind.specials == "fnuz":
        values[0x80] = np.nan
    else:
        highest = exponent == exponent.max()
        values[highest] = np.where(fraction[highest] == 0, sign[highest] * np.inf, np.nan)
    return values
