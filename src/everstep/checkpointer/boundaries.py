"""What is due at a step boundary: nothing (None), a save, or a save and the end. Alone, or the same on all ranks."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from everstep.cadence import Cadence, Moment
from everstep.checkpointer.because import Because, Reason
from everstep.checkpointer.demand import Demand
from everstep.checkpointer.signals import StopSignals

__all__ = ["Alone", "Boundaries", "Due"]


@dataclass(frozen=True, slots=True)
class Due:
    """A save is due, and with ``stop`` the end."""

    because: Because
    stop: bool = False


class Boundaries(Protocol):
    """Asked before the first step and after each one; a context, because it may have a thread."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def begin(self, start: int, until: int) -> None:
        """The loop begins with ``start`` steps done, to do ``until``."""
        ...

    def at(self, done: int, *, step_s: float, since_save_s: float) -> Due | None:
        """What is due now that ``done`` steps are done, the last in ``step_s`` seconds."""
        ...

    def ended(self) -> bool:
        """After the last step: whether the process was told to stop."""
        ...

    def leave(self) -> None:
        """All is durable, and the process is about to exit because it was told to stop."""
        ...


class Alone:
    """One rank: its signals, its cadence, and what people ask for."""

    def __init__(self, signals: StopSignals, cadence: Cadence, demand: Demand) -> None:
        self._demand = demand
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

    def at(self, done: int, *, step_s: float, since_save_s: float) -> Due | None:
        """Stop when a signal came, save when the cadence says so or somebody asked."""
        if self._signals.received:
            return Due(Because(Reason.NOTICE, self._signals.received.name), stop=True)
        moment = Moment(step=done, since_s=since_save_s, step_s=step_s, at=time.time())
        why = self._cadence.due(moment)
        if why:
            return Due(Because(Reason.DUE, why))
        asked = self._demand.wanted()
        return Due(Because(Reason.ASKED, asked)) if asked else None

    def ended(self) -> bool:
        """Whether a signal came."""
        return self._signals.received is not None

    def leave(self) -> None:
        """Nobody waits for this process."""
