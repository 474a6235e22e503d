"""Saving every so many steps, or every so many seconds."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from everstep.errors import NotYetSupported, UsageError

__all__ = ["Cadence", "EverySeconds", "EverySteps", "Never", "parse_every"]

_UNIT_SECONDS = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|sec|m|min|h|d)")
_STEPS = re.compile(r"(\d+)(?:\s*steps?)?")


class Cadence(Protocol):
    """Decides at each step boundary whether a save is due.

    ``by_clock`` says that the answer depends on the time too, so that processes may differ.
    """

    @property
    def by_clock(self) -> bool:
        """Whether the answer depends on more than the step."""
        ...

    def due(self, *, step: int, since_s: float) -> bool:
        """Whether to save now: ``step`` steps are done, the last save began ``since_s`` seconds ago."""
        ...

    def interval_s(self, *, step_s: float) -> float:
        """Seconds from one save to the next, when a step takes ``step_s``; infinite when unknown."""
        ...


@dataclass(frozen=True, slots=True)
class EverySteps:
    """At each multiple of ``steps``, so that the steps saved do not depend on where a run was resumed."""

    steps: int

    @property
    def by_clock(self) -> bool:
        """No."""
        return False

    def due(self, *, step: int, since_s: float) -> bool:  # noqa: ARG002 - the Protocol's signature
        """Whether ``step`` is a multiple."""
        return step % self.steps == 0

    def interval_s(self, *, step_s: float) -> float:
        """The time that so many steps take."""
        return self.steps * step_s if step_s > 0 else math.inf


@dataclass(frozen=True, slots=True)
class EverySeconds:
    """When ``seconds`` have passed since the last save began."""

    seconds: float

    @property
    def by_clock(self) -> bool:
        """Yes."""
        return True

    def due(self, *, step: int, since_s: float) -> bool:  # noqa: ARG002 - the Protocol's signature
        """Whether the time has passed."""
        return since_s >= self.seconds

    def interval_s(self, *, step_s: float) -> float:
        """The interval itself, or one step where that is longer."""
        return max(self.seconds, step_s)


@dataclass(frozen=True, slots=True)
class Never:
    """Only when the training ends, is preempted, or saves by hand."""

    @property
    def by_clock(self) -> bool:
        """No."""
        return False

    def due(self, *, step: int, since_s: float) -> bool:  # noqa: ARG002 - the Protocol's signature
        """Never."""
        return False

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
