"""Cadences that learn nothing: every so many steps or seconds, at given steps, never."""

from __future__ import annotations

import math
from dataclasses import dataclass

from everstep.cadence.cadence import Decision, Life, Measured, Moment
from everstep.cadence.durations import checked_duration, duration_text
from everstep.errors import UsageError

__all__ = ["At", "EverySeconds", "EverySteps", "Never"]

_LAST_STEP = 10**15


class _Fixed:
    """A cadence that learns nothing."""

    __slots__ = ()

    def learn(self, told: Measured | tuple[Life, ...]) -> None:
        """Nothing depends on it."""

    @property
    def by_history(self) -> bool:
        """No."""
        return False

    def decisions(self) -> tuple[Decision, ...]:
        """None are made."""
        return ()


@dataclass(frozen=True, slots=True)
class EverySteps(_Fixed):
    """At each multiple of ``steps``, so that the steps saved do not depend on where a run was resumed."""

    steps: int

    def __post_init__(self) -> None:
        _check_step(self.steps, "EverySteps")

    def by_step(self, step: int) -> str:
        """At a multiple."""
        return f"a multiple of {self.steps} steps" if step % self.steps == 0 else ""

    def due(self, moment: Moment) -> str:
        """What the step alone says."""
        return self.by_step(moment.step)

    def interval_s(self, *, step_s: float) -> float:
        """The time that so many steps take."""
        return self.steps * step_s if step_s > 0 else math.inf

    def text(self) -> str:
        """``500 steps``."""
        return f"{self.steps} step{'s' if self.steps > 1 else ''}"


@dataclass(frozen=True, slots=True)
class EverySeconds(_Fixed):
    """When ``seconds`` have passed since the last save began."""

    seconds: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "seconds", checked_duration(self.seconds, what=f"every {self.seconds!r} s"))

    def by_step(self, step: int) -> str:  # noqa: ARG002 - the Protocol's signature
        """The step says nothing."""
        return ""

    def due(self, moment: Moment) -> str:
        """When the time has passed."""
        return f"{moment.since_s:.0f} s since the last save" if moment.since_s >= self.seconds else ""

    def interval_s(self, *, step_s: float) -> float:
        """The interval itself, or one step where that is longer."""
        return max(self.seconds, step_s)

    def text(self) -> str:
        """``10m``."""
        return duration_text(self.seconds)


@dataclass(frozen=True, slots=True, init=False)
class At(_Fixed):
    """At given steps, each once: ``At(100, 200, 5000)``."""

    steps: tuple[int, ...]

    def __init__(self, *steps: int) -> None:
        if not steps:
            raise UsageError("At() names no step", hint='write At(100, 200), or "at 100, 200"')
        for step in steps:
            _check_step(step, "At")
        object.__setattr__(self, "steps", tuple(sorted(set(steps))))

    def by_step(self, step: int) -> str:
        """At one of them."""
        return f"step {step} is one to save" if step in self.steps else ""

    def due(self, moment: Moment) -> str:
        """What the step alone says."""
        return self.by_step(moment.step)

    def interval_s(self, *, step_s: float) -> float:  # noqa: ARG002 - the Protocol's signature
        """Unknown: the steps lie as they lie."""
        return math.inf

    def text(self) -> str:
        """``at 100, 200, 5000``."""
        return f"at {', '.join(map(str, self.steps))}"


@dataclass(frozen=True, slots=True)
class Never(_Fixed):
    """Only when the training ends, is preempted, is asked to, or saves by hand."""

    def by_step(self, step: int) -> str:  # noqa: ARG002 - the Protocol's signature
        """Never."""
        return ""

    def due(self, moment: Moment) -> str:
        """What the step alone says."""
        return self.by_step(moment.step)

    def interval_s(self, *, step_s: float) -> float:  # noqa: ARG002 - the Protocol's signature
        """Unknown."""
        return math.inf

    def text(self) -> str:
        """``never``."""
        return "never"


def _check_step(step: int, what: str) -> None:
    if isinstance(step, bool) or not isinstance(step, int) or not 0 < step <= _LAST_STEP:
        raise UsageError(
            f"{what} of {step!r} is no number of steps",
            hint=f"write a whole number from 1 to {_LAST_STEP:.0e}: every=500",
            steps=repr(step),
        )
