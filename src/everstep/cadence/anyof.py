"""Several cadences at once."""

from __future__ import annotations

import math

from everstep.cadence.cadence import Cadence, Decision, Life, Measured, Moment
from everstep.errors import UsageError

__all__ = ["AnyOf"]


class AnyOf:
    """Due when any of its members is: ``AnyOf(EverySteps(1000), EverySeconds(1800))``."""

    __slots__ = ("members",)

    def __init__(self, *members: Cadence) -> None:
        if not members:
            raise UsageError("AnyOf() has no member", hint='write every=["1000 steps", "30m"]')
        flat: list[Cadence] = []
        for member in members:
            flat.extend(member.members if isinstance(member, AnyOf) else (member,))
        self.members: tuple[Cadence, ...] = tuple(flat)

    @property
    def by_history(self) -> bool:
        """When any member is."""
        return any(member.by_history for member in self.members)

    def by_step(self, step: int) -> str:
        """The first member that the step alone makes due."""
        return next((why for member in self.members if (why := member.by_step(step))), "")

    def due(self, moment: Moment) -> str:
        """The reason of the first member that is due; every member sees every moment."""
        reasons = [member.due(moment) for member in self.members]
        return next((why for why in reasons if why), "")

    def interval_s(self, *, step_s: float) -> float:
        """The shortest."""
        return min((member.interval_s(step_s=step_s) for member in self.members), default=math.inf)

    def learn(self, told: Measured | tuple[Life, ...]) -> None:
        """All learn."""
        for member in self.members:
            member.learn(told)

    def decisions(self) -> tuple[Decision, ...]:
        """Those of all."""
        return tuple(decision for member in self.members for decision in member.decisions())

    def text(self) -> str:
        """``1000 steps or 30m or at 100, 250``."""
        return " or ".join(member.text() for member in self.members)

    def __repr__(self) -> str:
        return f"AnyOf({self.text()!r})"
