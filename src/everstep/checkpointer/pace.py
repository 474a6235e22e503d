"""What steps and saves take, and how fast the background may write, so that training keeps its processor."""

from __future__ import annotations

import math
from collections import deque
from statistics import fmean

from everstep.cadence import Cadence
from everstep.transfer.pacer import Pacer

__all__ = ["Pace"]

_SHARE = 0.25
"""An upload is spread over at most this share of the time to the next save."""
_GENTLE_BYTES_PER_S = 0.5e9
"""At this rate a step beside an upload takes 6 to 9 % longer (docs/performance.md); slower would win little."""
_REMEMBERED = 64
"""Quiet steps whose mean is what a step takes without a save beside it."""


class Pace:
    """Measures steps and saves, and gives each save a pacer."""

    def __init__(self) -> None:
        self._steps = 0
        self._stepping_s = 0.0
        self._quiet: deque[float] = deque(maxlen=_REMEMBERED)
        self._beside: list[float] = []
        self._last_save: float | None = None

    def stepped(self, seconds: float, *, beside: bool = False) -> None:
        """One more step took so long; ``beside`` a save that was under way."""
        self._steps += 1
        self._stepping_s += seconds
        (self._beside if beside else self._quiet).append(seconds)

    @property
    def step_s(self) -> float:
        """The mean time of a step in seconds, 0 while none was done."""
        return self._stepping_s / self._steps if self._steps else 0.0

    def slowed_s(self) -> float:
        """How much longer the steps beside saves took, together, than as many quiet ones; asked once for each save.

        In seconds, 0 while there were no quiet steps. Steps vary, so it may be below 0 by chance: cut off there, or
        taken against the median of steps of which some are long, it would on average be too much.
        """
        beside, self._beside = self._beside, []
        return sum(beside) - len(beside) * fmean(self._quiet) if self._quiet else 0.0

    def since_save(self, now: float) -> float:
        """Seconds since the last save began, or since the first question."""
        if self._last_save is None:
            self._last_save = now
        return now - self._last_save

    def pacer(self, nbytes: int, *, cadence: Cadence, now: float) -> Pacer:
        """The pacer of a save of ``nbytes`` that begins now; unlimited when the next one's time is unknown."""
        interval = cadence.interval_s(step_s=self.step_s)
        if not math.isfinite(interval) and self._last_save is not None:
            interval = now - self._last_save
        self._last_save = now
        if not math.isfinite(interval) or interval <= 0:
            return Pacer()
        return Pacer(max(_GENTLE_BYTES_PER_S, nbytes / (_SHARE * interval)))
