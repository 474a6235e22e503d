"""What every cadence answers, and the figures it is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

__all__ = ["Cadence", "Decision", "Life", "Measured", "Moment"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A step boundary: ``step`` steps are done.

    ``since_s`` is the time since the last save began (or the loop), ``step_s`` the mean time of a step in this loop,
    0 while none was done; both in seconds. ``at`` is in seconds since 1970 by this process's clock.
    """

    step: int
    since_s: float
    step_s: float
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one save cost, in seconds and bytes.

    Training stood still for ``stall_s``; the checkpoint was durable ``durable_s`` after the save began; the steps
    beside the upload took ``slowed_s`` longer than steps without one, all together; less by chance is below 0.
    ``bytes`` is the state's size, ``stored_bytes`` what had to be uploaded. ``step`` is the step saved, ``at`` seconds
    since 1970.
    """

    step: int
    stall_s: float
    durable_s: float
    slowed_s: float
    bytes: int
    stored_bytes: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One attempt of a run, as its records in the store tell: how long it lived, and how it ended.

    ``up_s`` is the time from its claim to its last sign of life (its last commit). ``ended`` is "running" (the
    attempt that asks), "finished" (the last step was saved), "noticed" (told to stop, and saved), or "lost".
    """

    attempt: int
    up_s: float
    ended: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A change of the interval: what it was and is now in seconds, why, and the figures behind it by name.

    ``from_s`` is 0 for the first decision, when nothing was measured before.
    """

    step: int
    from_s: float
    to_s: float
    why: str
    figures: dict[str, float] = field(default_factory=dict)


class Cadence(Protocol):
    """Decides at each step boundary whether a save is due.

    A cadence belongs to one loop, and is used from its thread. What follows from the step alone (``by_step``) all
    ranks find out alike, and save at that very step. All else (``due``) may differ between processes: only rank 0 is
    told figures and lives, only its answer counts, and the ranks agree on a step soon after.
    """

    @property
    def by_history(self) -> bool:
        """Whether it wants to `learn` the run's attempts, which costs some requests at the start."""
        ...

    def by_step(self, step: int) -> str:
        """Why a save is due once ``step`` steps are done, whatever the clock says; the same in all processes."""
        ...

    def due(self, moment: Moment) -> str:
        """Why a save is due now, by the step or otherwise, in words for people; empty when none is."""
        ...

    def interval_s(self, *, step_s: float) -> float:
        """Seconds from one save to the next, when a step takes ``step_s``; infinite when unknown."""
        ...

    def learn(self, told: Measured | tuple[Life, ...]) -> None:
        """What a save cost; or, once before the first step, the run's attempts, oldest first."""
        ...

    def decisions(self) -> tuple[Decision, ...]:
        """What was decided since this was asked last."""
        ...

    def text(self) -> str:
        """What `parse_every` reads as this cadence: for records and people."""
        ...
