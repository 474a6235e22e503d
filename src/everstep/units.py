"""Durations and sizes as people write them: ``90s``, ``1h 30m``, ``15GB``, ``256MiB``."""

from __future__ import annotations

import math
import re
from typing import Final

__all__ = ["DURATION", "parse_bytes", "parse_seconds"]

_SECONDS = {
    "s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0,
    "m": 60.0, "min": 60.0, "mins": 60.0, "minute": 60.0, "minutes": 60.0,
    "h": 3600.0, "hr": 3600.0, "hour": 3600.0, "hours": 3600.0,
    "d": 86400.0, "day": 86400.0, "days": 86400.0,
    "w": 604800.0, "week": 604800.0, "weeks": 604800.0,
}  # fmt: skip
DURATION: Final = rf"\d{{1,15}}(?:\.\d{{1,9}})?\s*(?:{'|'.join(sorted(_SECONDS, key=len, reverse=True))})"
"""The pattern of one part of a duration, in lower case: ``10m``, ``1.5 hours``."""
_DURATION_PART = re.compile(rf"({DURATION})(?![a-z])")
_NUMBER = re.compile(r"[\d.]+")
_BYTES = {
    "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "pb": 10**15,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "pib": 2**50,
}  # fmt: skip
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([A-Za-z]*)")


def parse_seconds(text: str) -> float:
    """The seconds in ``30s``, ``10m``, ``1.5h``, ``2d``, ``1w``, ``1h 30m``. Raises ValueError with the form."""
    rest, total = text.strip().lower(), 0.0
    while rest:
        part = _DURATION_PART.match(rest)
        if part is None:
            raise ValueError("a duration such as 30s, 10m, 2h, 7d or 1h 30m")
        number = _NUMBER.match(part[1])
        assert number is not None
        total += float(number[0]) * _SECONDS[part[1][number.end() :].strip()]
        rest = rest[part.end() :].lstrip()
    if not text.strip() or not math.isfinite(total):
        raise ValueError("a duration such as 30s, 10m, 2h, 7d or 1h 30m")
    return total


def parse_bytes(text: str) -> int:
    """The bytes in ``268435456``, ``256MiB``, ``1.5GB``, ``2TB``. Raises ValueError with the form."""
    found = _SIZE.fullmatch(text.strip())
    unit = _BYTES.get((found[2] or "b").lower()) if found else None
    if found is None or unit is None:
        raise ValueError("a size such as 268435456, 256MiB or 1.5GB")
    return int(float(found[1]) * unit)
