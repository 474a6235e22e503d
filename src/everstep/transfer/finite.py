"""Which staged tensors hold NaN or infinities."""

from __future__ import annotations

import numpy as np

from everstep.transfer.numbers import as_numbers
from everstep.transfer.stage import Staged

__all__ = ["not_finite"]

_BLOCK = 2**20
_FAST = {"float16": "<f2", "float32": "<f4", "float64": "<f8", "complex64": "<f4", "complex128": "<f8"}
_FLOATING = ("float", "bfloat", "complex")


def not_finite(staged: Staged) -> tuple[str, ...]:
    """Paths of floating-point leaves with an element that is NaN or infinite, in order, each once."""
    found: dict[str, None] = {}
    for pack in staged.packs:
        for part in pack.layout.parts:
            piece = staged.pieces[part.piece]
            if piece.path in found or not piece.dtype.startswith(_FLOATING):
                continue
            body = pack.image[part.offset : part.offset + part.length]
            if not all(
                _finite(body[start : start + _BLOCK], piece.dtype) for start in range(0, part.length, _BLOCK)
            ):
                found[piece.path] = None
    return tuple(found)


def _finite(block: memoryview, dtype: str) -> bool:
    """Whether all elements are finite; a type whose values are not known counts as finite."""
    if dtype in _FAST:
        return bool(np.isfinite(np.frombuffer(block, _FAST[dtype])).all())
    if dtype == "bfloat16":  # infinite or NaN: all bits of the exponent are one
        return not bool(((np.frombuffer(block, "<u2") & 0x7F80) == 0x7F80).any())
    numbers = as_numbers(block, dtype)
    return numbers is None or bool(np.isfinite(numbers).all())
