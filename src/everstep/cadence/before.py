"""A save so early that it is durable before a deadline."""

from __future__ import annotations

import math
from collections import deque
from datetime import datetime, timedelta

from everstep.cadence.cadence import Decision, Life, Measured, Moment
from everstep.cadence.durations import checked_duration, duration_text, moment_text, parse_moment, spoken

__all__ = ["Before"]

_UNMEASURED_S = 600.0
"""The lead time while no save was measured."""
_TIMES = 2
"""A save may have to wait for the one before: twice the longest time to durable of the last saves."""
_SPARE_S, _SPARE_STEPS = 5.0, 2
"""Ranks agree on a step a moment ahead, and a boundary comes only when a step is done."""
_REMEMBERED = 5


class Before:
    """One save that is durable before ``deadline`` (with time zone, or its ISO 8601 text).

    It begins when the time left is twice the longest time to durable of the last saves, two steps and 5 s; ten minutes
    while none was measured; at least ``lead`` when that is given. When saves turn out faster, so that it could have
    begun in the second half of the time that was left, it is made once more. Afterwards it is never due again.
    """

    __slots__ = ("_fired_at", "_lead_s", "_measured", "at")

    def __init__(self, deadline: datetime | str, *, lead: float | str | timedelta | None = None) -> None:
        self.at = parse_moment(deadline)
        self._lead_s = 0.0 if lead is None else checked_duration(lead, what=f"lead={lead!r}")
        self._measured: deque[float] = deque(maxlen=_REMEMBERED)
        self._fired_at = -math.inf

    @property
    def by_history(self) -> bool:
        """No."""
        return False

    def by_step(self, step: int) -> str:  # noqa: ARG002 - the Protocol's signature
        """The step says nothing."""
        return ""

    def lead_s(self, *, step_s: float) -> float:
        """Seconds before the deadline at which the save begins."""
        measured = _TIMES * max(self._measured) + _SPARE_S if self._measured else _UNMEASURED_S
        if self._lead_s and not self._measured:
            measured = 0.0
        return max(self._lead_s, measured + _SPARE_STEPS * step_s)

    def due(self, moment: Moment) -> str:
        """Once the time left is the lead time, if no save has begun since; not after the deadline."""
        start = self.at - self.lead_s(step_s=moment.step_s)
        if not start <= moment.at < self.at or moment.at - moment.since_s >= start:
            return ""
        if self._fired_at > -math.inf and self.at - start > (self.at - self._fired_at) / 2:
            return ""
        self._fired_at = start
        return f"{spoken(self.at - moment.at)} are left until {moment_text(self.at)}"

    def interval_s(self, *, step_s: float) -> float:  # noqa: ARG002 - the Protocol's signature
        """Unknown: it is one save."""
        return math.inf

    def learn(self, told: Measured | tuple[Life, ...]) -> None:
        """How long a save takes to be durable."""
        if isinstance(told, Measured):
            self._measured.append(max(0.0, told.durable_s))

    def decisions(self) -> tuple[Decision, ...]:
        """None are made."""
        return ()

    def text(self) -> str:
        """``before 2026-11-22T18:00:00Z``, or ``10m before ...``."""
        lead = f"{duration_text(self._lead_s)} " if self._lead_s else ""
        return f"{lead}before {moment_text(self.at)}"

    def __repr__(self) -> str:
        return f"Before({self.text()!r})"
