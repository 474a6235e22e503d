"""The steps that one rank may do: what it has promised, and what all agreed on. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["HOLD", "Asked", "Course", "Hold", "Kind"]


class Kind(Enum):
    """What the ranks agree to do after a step."""

    SAVE = "save"
    STOP = "stop"


class Hold(Enum):
    """What a boundary answers while the others have not said how far they are."""

    HOLD = "hold"


HOLD = Hold.HOLD


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked of all ranks, by which of them, and why."""

    kind: Kind
    rank: int
    reason: str


class Course:
    """One rank's way from ``done`` steps to ``until``. Not safe for threads: its owner holds a lock.

    ``committed`` is the step it will complete in any case: the one it works on, or at a boundary the last one done.
    A promise is the committed step, or a later one; a boundary at the promised step is not left before the target,
    the highest promise of all ranks, is known. So nobody ever is beyond a target.
    """

    def __init__(self, *, done: int, until: int) -> None:
        self.done = self.committed = done
        self.until = until
        self.promised: int | None = None
        self._agreed: list[tuple[int, Asked]] = []

    def promise(self, lead: int) -> int:
        """Promise not to leave the boundary after the committed step and ``lead`` more, at most ``until``."""
        self.promised = min(self.committed + lead, self.until)
        return self.promised

    def agree(self, target: int, asked: Asked) -> None:
        """All ranks promised; the highest of their promises is the target."""
        assert self.promised is not None, "no target without a promise"
        assert target >= self.promised, "a target is the highest promise"
        self.promised = None
        self._agreed.append((target, asked))

    def ahead(self) -> set[Kind]:
        """What is agreed on and not done yet."""
        return {asked.kind for _, asked in self._agreed}

    def arrive(self, done: int) -> None:
        """Be at the boundary after ``done`` steps."""
        self.done = self.committed = done

    def leave(self) -> Asked | Hold | None:
        """What is due at this boundary; unless it is HOLD or a stop, the next step is now committed.

        A stop at the same step beats a save; a stop at an earlier step makes the save unnecessary.
        """
        if self.promised is not None and self.done >= self.promised:
            return HOLD
        due = [asked for target, asked in self._agreed if target <= self.done]
        self._agreed = [(target, asked) for target, asked in self._agreed if target > self.done]
        stop = next((asked for asked in due if asked.kind is Kind.STOP), None)
        if stop is None:
            self.committed = min(self.done + 1, self.until)
        return stop or (due[0] if due else None)
