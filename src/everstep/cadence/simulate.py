"""A training that saves at an interval and is stopped again and again, played through event by event."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

from everstep.cadence.outages import Outage, Outages
from everstep.errors import UsageError

__all__ = ["Job", "Notice", "Outcome", "simulate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A training that begins a save every ``interval_s`` seconds, the first so long after it went on.

    Each save stops training for ``stall_s`` and is durable ``durable_s`` after it began; meanwhile training goes on
    and loses ``slowed_s`` in all. After an outage it takes ``restart_s`` until it trains again. Raises `UsageError`
    for an interval in which a save is not over.
    """

    interval_s: float
    stall_s: float = 0.0
    durable_s: float = 0.0
    slowed_s: float = 0.0
    restart_s: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        for name in ("interval_s", "stall_s", "durable_s", "slowed_s", "restart_s"):
            seconds = getattr(self, name)
            if not (math.isfinite(seconds) and seconds >= 0):
                raise UsageError(f"{name}={seconds} is no duration", hint="give seconds from 0 on")
        if self.durable_s < self.stall_s or self.slowed_s > self.durable_s - self.stall_s:
            raise UsageError(
                f"a save that stalls {self.stall_s:g} s and slows by {self.slowed_s:g} s cannot be durable after "
                f"{self.durable_s:g} s",
                hint="durable_s counts from the begin of the save: stall, then upload",
            )
        if self.interval_s <= 0 or self.interval_s < self.durable_s:
            raise UsageError(
                f"an interval of {self.interval_s:g} s is shorter than a save takes ({self.durable_s:g} s)",
                hint=f"save every {math.ceil(self.durable_s)}s or more seldom",
                interval_s=self.interval_s,
            )

    def work_s(self, seconds: float) -> float:
        """The useful work of the first ``seconds`` after training went on."""
        saves = math.floor(seconds / self.interval_s)
        return self._work_at(saves) + self._work_since(seconds - saves * self.interval_s, first=saves == 0)

    def saved_s(self, seconds: float) -> float:
        """How much of that work is in a durable checkpoint then."""
        durable = math.floor((seconds - self.durable_s) / self.interval_s)
        return self._work_at(max(0, durable))

    def stalled_s(self, seconds: float) -> float:
        """How long training stood still for saves in that time."""
        saves = math.floor(seconds / self.interval_s)
        if saves == 0:
            return 0.0
        return (saves - 1) * self.stall_s + min(self.stall_s, seconds - saves * self.interval_s)

    def _work_at(self, saves: int) -> float:
        """The work done when that save begins."""
        if saves == 0:
            return 0.0
        return self.interval_s + (saves - 1) * (self.interval_s - self.stall_s - self.slowed_s)

    def _work_since(self, seconds: float, *, first: bool) -> float:
        """The work since a save began, or since training went on."""
        if first:
            return seconds
        upload_s = self.durable_s - self.stall_s
        moving = max(0.0, seconds - self.stall_s)
        return moving - (self.slowed_s * min(1.0, moving / upload_s) if upload_s > 0 else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Word that comes ``ahead_s`` seconds before an outage, with ``probability``; a last save takes ``save_s``."""

    probability: float = 0.0
    ahead_s: float = 0.0
    save_s: float = 0.0

    @property
    def fits(self) -> bool:
        """Whether the last save is durable before the end."""
        return self.ahead_s > 0 and self.save_s <= self.ahead_s

    @property
    def saves(self) -> float:
        """The share of outages that cost no work."""
        return self.probability if self.fits else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Where the time went, in seconds that add up to ``elapsed_s``, and what happened how often.

    ``useful_s`` is work that was kept; ``lost_s`` work done again; ``stalled_s`` and ``slowed_s`` what saves cost;
    ``noticed_s`` from a notice until its save was durable; ``restarting_s`` and ``waiting_s`` (too few machines).
    ``saved_by_notice`` of the ``outages`` lost nothing.
    """

    elapsed_s: float
    useful_s: float
    lost_s: float
    stalled_s: float
    slowed_s: float
    noticed_s: float
    restarting_s: float
    waiting_s: float
    outages: int
    saved_by_notice: int

    @property
    def goodput(self) -> float:
        """Useful work, as a share of the time in which there were enough machines."""
        there = self.elapsed_s - self.waiting_s
        return self.useful_s / there if there > 0 else 0.0

    @property
    def lost_per_outage_s(self) -> float:
        """Work lost by one outage, in the mean."""
        return self.lost_s / self.outages if self.outages else 0.0


class _Spent:
    """The sums of an `Outcome`, while it is played."""

    __slots__ = (
        "job",
        "lost",
        "noticed",
        "outages",
        "restarting",
        "saved",
        "slowed",
        "stalled",
        "useful",
        "waiting",
    )

    def __init__(self, job: Job) -> None:
        self.job = job
        self.useful = self.lost = self.stalled = self.slowed = self.noticed = 0.0
        self.restarting = self.waiting = 0.0
        self.outages = self.saved = 0

    def trained(self, seconds: float, *, kept: float | None = None) -> None:
        """A spell of training, of which the work ``kept`` is not lost; None: all of it."""
        work, stalled = self.job.work_s(seconds), self.job.stalled_s(seconds)
        kept = work if kept is None else kept
        self.useful += kept
        self.lost += work - kept
        self.stalled += stalled
        self.slowed += seconds - work - stalled


def simulate(
    job: Job, outages: Outages, *, seed: int, horizon_s: float = math.inf, notice: Notice | None = None
) -> Outcome:
    """What becomes of ``horizon_s`` seconds, or of a trace until its end, deterministic by ``seed``.

    The same seed plays the same outages for every job. The first start costs no restart. An outage during a restart
    begins it anew. A notice whose save fits stops training at once and loses nothing; the restart begins when the
    save is durable, or when there are machines. A notice whose save does not fit is ignored. At the end of the
    horizon nothing is lost.
    """
    notice = notice or Notice()
    ends = min(horizon_s, outages.ends_s)
    if not math.isfinite(ends):
        raise UsageError("a simulation without end", hint="give horizon_s, in seconds")
    lots = Random(f"outages {seed}")  # noqa: S311 - a simulation, which must come out the same again
    noticing = Random(f"notices {seed}")  # noqa: S311 - the same
    spent = _Spent(job)
    spent.waiting = min(ends, outages.first_s)
    begins = down = outages.first_s
    for outage in outages.outages(lots):
        told = noticing.random() < notice.saves
        if outage.at >= ends or begins >= ends:
            break
        spent.outages += 1
        down, begins = _stopped(spent, outage, notice if told else None, down=down, begins=begins, ends=ends)
    spent.restarting += max(0.0, min(ends, begins) - min(ends, down))
    if begins < ends:
        spent.trained(ends - begins)
    return Outcome(
        elapsed_s=ends,
        useful_s=spent.useful,
        lost_s=spent.lost,
        stalled_s=spent.stalled,
        slowed_s=spent.slowed,
        noticed_s=spent.noticed,
        restarting_s=spent.restarting,
        waiting_s=spent.waiting,
        outages=spent.outages,
        saved_by_notice=spent.saved,
    )


def _stopped(
    spent: _Spent, outage: Outage, told: Notice | None, *, down: float, begins: float, ends: float
) -> tuple[float, float]:
    """One outage; gives when the next restart begins, and when training goes on."""
    stopped = outage.at
    if outage.at <= begins:
        spent.restarting += outage.at - down
    elif told is None:
        spent.restarting += begins - down
        spent.trained(outage.at - begins, kept=spent.job.saved_s(outage.at - begins))
    else:
        spent.restarting += begins - down
        noticed = max(begins, outage.at - told.ahead_s)
        stopped = min(outage.at, noticed + told.save_s)
        spent.trained(noticed - begins)
        spent.noticed += stopped - noticed
        spent.saved += 1
    ready = outage.ready if outage.ready > outage.at else stopped
    spent.waiting += min(ends, ready) - stopped
    return ready, ready + spent.job.restart_s
