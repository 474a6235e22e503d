"""Step boundaries of several ranks: a stop that one is told of, or a save by the clock, is the same step for all."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from everstep.cadence import Cadence, Moment
from everstep.checkpointer.because import Because, Reason
from everstep.checkpointer.boundaries import Due
from everstep.checkpointer.demand import Demand
from everstep.checkpointer.signals import StopSignals
from everstep.checkpointer.together import Together
from everstep.ranks.agreement import Agreement
from everstep.ranks.course import Kind

__all__ = ["AmongRanks"]

_TOLD, _NOT_TOLD = b"1", b"0"


class AmongRanks:
    """One rank's boundaries.

    What a cadence says by the step needs no word between ranks. What it says by the clock is rank 0's, because clocks
    differ: it asks for a save, and the ranks agree on the step while they train on. So does any rank that a person
    asks.
    """

    def __init__(self, together: Together, signals: StopSignals, cadence: Cadence, demand: Demand) -> None:
        self._demand = demand
        self._together = together
        self._signals = signals
        self._cadence = cadence
        self._agreement: Agreement | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the thread that listens to the others, and tell them when this rank left in the middle."""
        if self._agreement is not None:
            self._agreement.close(None if isinstance(error, SystemExit) else error)

    def begin(self, start: int, until: int) -> None:
        """From here on a stop can be agreed on."""
        self._agreement = Agreement(
            self._together.ranks,
            done=start,
            until=until,
            notice=lambda: self._signals.received is not None,
            patience_s=self._together.patience_s,
        )

    def at(self, done: int, *, step_s: float, since_save_s: float) -> Due | None:
        """What all ranks agreed on for this step, or the cadence's answer."""
        assert self._agreement is not None, "begin comes first"
        asked = self._agreement.due(done, step_s=step_s)
        if asked is not None:
            return Due(Because.parse(asked.reason), stop=asked.kind is Kind.STOP)
        if why := self._cadence.by_step(done):
            return Due(Because(Reason.DUE, why))
        if because := self._wish(done, step_s=step_s, since_save_s=since_save_s):
            self._agreement.request(Kind.SAVE, because.text())
        return None

    def _wish(self, done: int, *, step_s: float, since_save_s: float) -> Because | None:
        """Why this rank asks the others for a save."""
        rank = self._together.ranks.rank
        if wanted := self._demand.wanted():
            return Because(Reason.ASKED, f"{wanted} on rank {rank}" if rank else wanted)
        if rank:
            return None
        why = self._cadence.due(Moment(step=done, since_s=since_save_s, step_s=step_s, at=time.time()))
        return Because(Reason.DUE, why) if why else None

    def ended(self) -> bool:
        """After the last step: whether any rank was told to stop, the same answer on all."""

        def word() -> bytes:
            return _NOT_TOLD if self._signals.received is None else _TOLD

        def decide(words: Mapping[int, bytes]) -> bytes:
            return _TOLD if _TOLD in words.values() else _NOT_TOLD

        return self._together.decided("end/stop", word, decide) == _TOLD

    def leave(self) -> None:
        """Say farewell. The launcher that sees one rank exit sends SIGTERM to the others: they are leaving already."""
        self._together.farewell()
        self._signals.leave()
