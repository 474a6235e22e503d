"""Saving every so many steps, or every so many seconds."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import timedelta

from everstep.cadence.cadence import Cadence, Decision, Life, Measured, Moment
from everstep.errors import NotYetSupported, UsageError

__all__ = ["EverySeconds", "EverySteps", "Never", "parse_every"]

_UNIT_SECONDS = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|sec|m|min|h|d)")
_STEPS = re.compile(r"(\d+)(?:\s*steps?)?")


class _Fixed:
    """A cadence that learns nothing."""

    __slots__ = ()

    def learn(self, told: Measured | tuple[Life, ...]) -> None:
        """Nothing depends on it."""

    def decisions(self) -> tuple[Decision, ...]:
        """None are made."""
        return ()


@dataclass(frozen=True, slots=True)
class EverySteps(_Fixed):
    """At each multiple of ``steps``, so that the steps saved do not depend on where a run was resumed."""

    steps: int

    @property
    def by_clock(self) -> bool:
        """No."""
        return False

    def due(self, moment: Moment) -> str:
        """At a multiple."""
        return f"a multiple of {self.steps} steps" if moment.step % self.steps == 0 else ""

    def interval_s(self, *, step_s: float) -> float:
        """The time that so many steps take."""
        return self.steps * step_s if step_s > 0 else math.inf


@dataclass(frozen=True, slots=True)
class EverySeconds(_Fixed):
    """When ``seconds`` have passed since the last save began."""

    seconds: float

    @property
    def by_clock(self) -> bool:
        """Yes."""
        return True

    def due(self, moment: Moment) -> str:
        """When the time has passed."""
        return f"{moment.since_s:.0f} s since the last save" if moment.since_s >= self.seconds else ""

    def interval_s(self, *, step_s: float) -> float:
        """The interval itself, or one step where that is longer."""
        return max(self.seconds, step_s)


@dataclass(frozen=True, slots=True)
class Never(_Fixed):
    """Only when the training ends, is preempted, or saves by hand."""

    @property
    def by_clock(self) -> bool:
        """No."""
        return False

    def due(self, moment: Moment) -> str:  # noqa: ARG002 - the Protocol's signature
        """Never."""
        return ""

    def interval_s(self, *, step_s: float) -> float:  # noqa: ARG002 - the Protocol's signature
        """Unknown."""
        return math.inf


def parse_every(every: int | str | timedelta | None) -> Cadence:
    """A cadence from what a user writes: ``500``, ``"500 steps"``, ``"10m"``, a timedelta, or None.

    Raises `UsageError` naming the form, and `NotYetSupported` for ``"auto"``.
    """
    if every is None:
        return Never()
    if every == "auto":
        raise NotYetSupported(
            'every="auto" is not in this version',
            hint='give steps (every=500) or a duration (every="10m")',
        )
    if isinstance(every, timedelta) and every > timedelta(0):
        return EverySeconds(every.total_seconds())
    if isinstance(every, int) and not isinstance(every, bool) and every > 0:
        return EverySteps(every)
    if isinstance(every, str):
        text = every.strip().lower()
        if (steps := _STEPS.fullmatch(text)) and int(steps[1]) > 0:
            return EverySteps(int(steps[1]))
        if (duration := _DURATION.fullmatch(text)) and float(duration[1]) > 0:
            return EverySeconds(float(duration[1]) * _UNIT_SECONDS[duration[2]])
    raise UsageError(
        f"every={every!r} says no steps and no duration",
        hint='write a positive number of steps (every=500, "500 steps") or a duration ("30s", "10m", "2h")',
        every=repr(every),
    )
