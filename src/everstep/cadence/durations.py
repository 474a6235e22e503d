"""Durations and moments as people write them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from everstep.errors import UsageError
from everstep.units import parse_seconds

__all__ = [
    "checked_duration",
    "duration_text",
    "moment_text",
    "parse_duration",
    "parse_moment",
    "spoken",
]

_LEAST_S, _MOST_S = 1e-3, 10 * 365 * 86400.0


def parse_duration(text: str) -> float:
    """Seconds of a text such as ``30s``, ``10m``, ``1.5 h`` or ``2 days``. Raises `UsageError`."""
    try:
        seconds = parse_seconds(text)
    except ValueError:
        raise UsageError(
            f"{text!r} is no duration", hint='write "30s", "10m", "2h" or "1d"', text=text
        ) from None
    return checked_duration(seconds, what=repr(text))


def checked_duration(
    value: float | str | timedelta, *, what: str, least_s: float = _LEAST_S, most_s: float = _MOST_S
) -> float:
    """Seconds from a number, a text or a timedelta, to the microsecond. Raises `UsageError` naming ``what``."""
    if isinstance(value, str):
        seconds = parse_duration(value)
    elif isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        seconds = float(value)
    else:
        raise UsageError(f"{what} is no duration", hint='write "30s", "10m", "2h", a timedelta, or seconds')
    if not least_s <= seconds <= most_s:
        raise UsageError(
            f"{what} is not between {spoken(least_s)} and {spoken(most_s)}",
            hint='write a duration such as "30s", "10m" or "2h"',
            seconds=seconds,
        )
    return round(seconds, 6)


def duration_text(seconds: float) -> str:
    """A text that `parse_duration` reads as exactly these seconds (to the microsecond): ``90m``, ``0.4s``."""
    for unit, factor in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= factor and seconds % factor == 0:
            return f"{int(seconds // factor)}{unit}"
    return f"{seconds:.6f}".rstrip("0").rstrip(".") + "s"


def spoken(seconds: float) -> str:
    """Seconds for people, to three figures in the fitting unit: ``0.4 s``, ``12 min``, ``2.9 h``, ``1,200 days``."""
    for unit, factor, least in (("days", 86400, 259200), ("h", 3600, 5400), ("min", 60, 600)):
        if seconds >= least:
            return f"{_three(seconds / factor)} {unit}"
    return f"{_three(seconds)} s"


def _three(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def parse_moment(value: str | datetime) -> float:
    """Seconds since 1970 of an ISO 8601 date and time with its time zone. Raises `UsageError`."""
    hint = 'write date, time and time zone: "2026-11-22T18:00:00Z" or "2026-11-22T18:00:00+02:00"'
    if isinstance(value, datetime):
        found = value
    else:
        try:
            found = datetime.fromisoformat(value.strip().upper())
        except ValueError:
            raise UsageError(f"{value!r} is no date and time", hint=hint, text=value) from None
    if found.tzinfo is None:
        raise UsageError(f"{str(value)!r} has no time zone", hint=hint, text=str(value))
    return found.timestamp()


def moment_text(at: float) -> str:
    """A moment in UTC, as `parse_moment` reads it."""
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
