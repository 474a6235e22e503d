"""The hour, day, week or month of a time, by UTC."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Final

from everstep.retention.rules import KeepDaily, KeepHourly, KeepMonthly, KeepWeekly

__all__ = ["Periodic", "period"]

Periodic = KeepHourly | KeepDaily | KeepWeekly | KeepMonthly

_NAMES: Final[dict[type[Periodic], Callable[[dt.datetime], str]]] = {
    KeepHourly: lambda at: f"{at:%Y-%m-%d %H}h",
    KeepDaily: lambda at: f"{at:%Y-%m-%d}",
    KeepWeekly: lambda at: "{:04}-W{:02}".format(*at.isocalendar()),
    KeepMonthly: lambda at: f"{at:%Y-%m}",
}
_FIRST: Final = dt.datetime.min.replace(tzinfo=dt.UTC)
_LAST: Final = dt.datetime.max.replace(tzinfo=dt.UTC)


def period(rule: Periodic, seconds: float) -> str:
    """The period's name, such as ``2026-11-20`` or ``2026-W47``: later ones sort later.

    Times that no calendar holds (a broken clock's) count as the first or the last there is.
    """
    try:
        at = dt.datetime.fromtimestamp(seconds, tz=dt.UTC)
    except (OverflowError, ValueError, OSError):
        at = _LAST if seconds > 0 else _FIRST
    return _NAMES[type(rule)](at)
