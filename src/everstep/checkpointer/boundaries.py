"""What is due at a step boundary: nothing, a save, or a save and the end. Alone, or the same on all ranks."""

from __future__ import annotations

import time
from enum import Enum
from types import TracebackType
from typing import Protocol, Self

from everstep.cadence import Cadence, Moment
from everstep.checkpointer.signals import StopSignals

__all__ = ["Alone", "Boundaries", "Due"]


class Due(Enum):
    """What a step boundary is for."""

    NOTHING = "nothing"
    SAVE = "save"
    STOP = "stop"


class Boundaries(Protocol):
    """Asked before the first step and after each one; a context, because it may have a thread."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def begin(self, start: int, until: int) -> None:
        """The loop begins with ``start`` steps done, to do ``until``."""
        ...

    def at(self, done: int, *, step_s: float, since_save_s: float) -> Due:
        """What is due now that ``done`` steps are done, the last in ``step_s`` seconds."""
        ...

    def ended(self) -> bool:
        """After the last step: whether the process was told to stop."""
        ...

    def leave(self) -> None:
        """All is durable, and the process is about to exit because it was told to stop."""
        ...


class Alone:
    """One rank: its signals and its cadence."""

    def __init__(self, signals: StopSignals, cadence: Cadence) -> None:
        self._signals = signals
        self._cadence = cadence

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to let go."""

    def begin(self, start: int, until: int) -> None:
        """Nothing to prepare."""

    def at(self, done: int, *, step_s: float, since_save_s: float) -> Due:
        """Stop when a signal came, save when the cadence says so."""
        if self._signals.received:
            return Due.STOP
        moment = Moment(step=done, since_s=since_save_s, step_s=step_s, at=time.time())
        return Due.SAVE if self._cadence.due(moment) else Due.NOTHING

    def ended(self) -> bool:
        """Whether a signal came."""
        return self._signals.received is not None

    def leave(self) -> None:
        """Nobody waits for this process."""
