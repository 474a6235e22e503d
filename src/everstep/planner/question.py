"""What is asked: a training, what stops it, what storage costs, and which intervals and retentions to compare."""

from __future__ import annotations

import math
from dataclasses import dataclass

from everstep.cadence.interval import best_period, effective_rate
from everstep.cadence.outages import Exponential, Replay, Weibull
from everstep.cadence.simulate import Job, Notice
from everstep.errors import UsageError
from everstep.prices import Prices
from everstep.retention.policy import Policy

__all__ = ["NOTICE_ROOM", "Question"]

NOTICE_ROOM = 1.25
"""A notice must be so many times as long as the last save: `Auto` plans with the same room."""
_LADDER = tuple(
    float(seconds)
    for seconds in (
        5,
        10,
        20,
        30,
        60,
        120,
        180,
        300,
        600,
        900,
        1200,
        1800,
        2700,
        3600,
        7200,
        14400,
        28800,
        86400,
    )
)
_AROUND = 6.0
"""Intervals from a sixth of the best to six times the best are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A training of ``state_bytes`` on ``machines`` machines that each upload ``bandwidth`` bytes a second.

    A save stops training for ``stall_s`` and uploads the share ``changed`` of the state; steps beside an upload take
    ``slowdown`` longer (0.08: 8 %). ``failures`` says when machines are lost; a restart takes ``restart_s``; a notice
    comes ``notice_s`` ahead, with ``notice_chance``. ``keeps`` are the retentions to compare, ``intervals`` those to
    compare besides the usual ones. ``overhead`` bounds the share of the time that saves may take. ``machine_price`` is
    dollars for an hour of one machine. Of a retention is told what it keeps after ``horizon_s``, with steps of
    ``step_s``.
    """

    state_bytes: int
    stall_s: float
    bandwidth: float
    failures: Exponential | Weibull | Replay
    restart_s: float
    prices: Prices
    keeps: tuple[Policy, ...]
    changed: float = 1.0
    slowdown: float = 0.0
    machines: int = 1
    machine_price: float | None = None
    notice_s: float = 0.0
    notice_chance: float = 0.0
    intervals: tuple[float, ...] = ()
    overhead: float = 0.03
    step_s: float = 1.0
    horizon_s: float = 30 * 86400.0
    seed: int = 0

    @property
    def new_bytes(self) -> int:
        """What one save uploads."""
        return math.ceil(self.state_bytes * self.changed)

    @property
    def upload_s(self) -> float:
        """How long that takes."""
        return self.new_bytes / (self.bandwidth * self.machines)

    @property
    def durable_s(self) -> float:
        """From the begin of a save until it is durable."""
        return self.stall_s + self.upload_s

    @property
    def slowed_s(self) -> float:
        """What training loses beside one upload."""
        return self.upload_s * self.slowdown / (1 + self.slowdown)

    @property
    def cost_s(self) -> float:
        """What one save takes from the training."""
        return self.stall_s + self.slowed_s

    @property
    def mtbf_s(self) -> float:
        """The mean time between outages of the whole job, in seconds; infinite for a trace without losses."""
        one = self.failures.trace.mtbf_s if isinstance(self.failures, Replay) else self.failures.mtbf_s
        return one / self.machines

    @property
    def notice(self) -> Notice:
        """The notice, as far as a save fits into it."""
        fits = NOTICE_ROOM * self.durable_s <= self.notice_s
        chance = self.notice_chance if fits else 0.0
        return Notice(probability=chance, ahead_s=self.notice_s, save_s=self.durable_s)

    def job(self, interval_s: float) -> Job:
        """The training with that interval."""
        return Job(
            interval_s=interval_s,
            stall_s=self.stall_s,
            durable_s=self.durable_s,
            slowed_s=self.slowed_s,
            restart_s=self.restart_s,
        )

    @property
    def shortest_s(self) -> float:
        """The shortest interval that can be: a save is durable before the next begins, and some work is done."""
        return max(self.durable_s, 1.01 * self.cost_s, 1.0)

    @property
    def best_s(self) -> float:
        """Daly's period for the outages that lose work, as far as it can be; a day where none do."""
        rate = effective_rate(1 / self.mtbf_s, announced=self.notice.saves) if self.mtbf_s < math.inf else 0.0
        best = best_period(max(self.cost_s, 1e-3), min(1 / rate, 1e9)) if rate > 0 else 86400.0
        return float(math.ceil(max(best, self.shortest_s)))

    def compared(self) -> tuple[float, ...]:
        """The intervals to compare, shortest first: those asked for, the best, and the usual ones around it.

        Raises `UsageError` for one that was asked for and is shorter than a save takes.
        """
        for asked in self.intervals:
            if asked < self.shortest_s:
                raise UsageError(
                    f"an interval of {asked:g} s is shorter than a save takes: it is durable after "
                    f"{self.durable_s:.3g} s",
                    hint=f"ask for {math.ceil(self.shortest_s)}s or more",
                    interval_s=asked,
                )
        best, overhead = self.best_s, math.ceil(self.cost_s / self.overhead)
        low, high = best / _AROUND, max(best, overhead) * _AROUND
        usual = (one for one in _LADDER if low <= one <= high and one >= self.shortest_s)
        bounded = (float(max(overhead, best)),)
        return tuple(sorted({*self.intervals, best, *bounded, *usual}))
