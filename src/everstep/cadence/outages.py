"""When machines are lost: by chance with or without memory, or as a trace of real ones tells."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Protocol

from everstep.cadence.trace import Trace

__all__ = ["Exponential", "Outage", "Outages", "Replay", "Weibull"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A loss that stops the job: when, and from when on enough machines are there again.

    Both in seconds since the start; ``ready`` is ``at`` where a replacement is there at once.
    """

    at: float
    ready: float


class Outages(Protocol):
    """A model of what stops a job that needs all of its machines."""

    @property
    def first_s(self) -> float:
        """Seconds until enough machines are there to begin; infinite when they never are."""
        ...

    @property
    def ends_s(self) -> float:
        """Seconds after which nothing is known; infinite for a model."""
        ...

    def outages(self, random: Random) -> Iterator[Outage]:
        """The outages in the order of their time, for ever or until the end of a trace."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential:
    """Losses without memory: each of ``machines`` is lost once in ``mtbf_s`` seconds in the mean."""

    mtbf_s: float
    machines: int = 1

    @property
    def first_s(self) -> float:
        """At once."""
        return 0.0

    @property
    def ends_s(self) -> float:
        """Never."""
        return math.inf

    def outages(self, random: Random) -> Iterator[Outage]:
        """Any of the machines: the rates add up."""
        at, rate = 0.0, self.machines / self.mtbf_s
        while True:
            at += random.expovariate(rate)
            yield Outage(at=at, ready=at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weibull:
    """Losses that come in bursts: a machine that has lived long is lost more seldom, for ``shape`` below 1.

    A lost machine is replaced by a new one, the others age on; all are new at the start. Schroeder and Gibson (A
    large-scale study of failures in high-performance computing systems, DSN 2006) found the time between failures
    of clusters to be Weibull with a decreasing hazard, of shape 0.7 to 0.8.
    """

    mtbf_s: float
    machines: int = 1
    shape: float = 0.7

    @property
    def first_s(self) -> float:
        """At once."""
        return 0.0

    @property
    def ends_s(self) -> float:
        """Never."""
        return math.inf

    def outages(self, random: Random) -> Iterator[Outage]:
        """The next loss of each machine, the earliest first."""
        scale = self.mtbf_s / math.gamma(1 + 1 / self.shape)
        ends = [random.weibullvariate(scale, self.shape) for _ in range(self.machines)]
        heapq.heapify(ends)
        while True:
            at = ends[0]
            heapq.heapreplace(ends, at + random.weibullvariate(scale, self.shape))
            yield Outage(at=at, ready=at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A trace of how many machines there were, of which the job holds ``machines``.

    A trace does not tell which machines went. When some of them go, each set of that size is as likely; so a job
    that holds few of many is often spared. A job that was hit goes on when as many as it needs are there.

    Each time is moved on by lot, by up to ``blur_s``: a trace of whole minutes would else be in step with saves at
    whole minutes. At most the trace's ``resolution_s``, so that the order stays.
    """

    trace: Trace
    machines: int = 1
    blur_s: float = 0.0

    @property
    def first_s(self) -> float:
        """The first time that enough are there."""
        return next((one.at for one in self.trace.counts if one.machines >= self.machines), math.inf)

    @property
    def ends_s(self) -> float:
        """The trace's own end."""
        return self.trace.ends_s

    def outages(self, random: Random) -> Iterator[Outage]:
        """The losses that hit the job, by lot."""
        there, hit_at = 0, math.inf
        held = False
        moved, last = 0.0, -math.inf
        for one in self.trace.counts:
            if one.at > last:
                moved, last = random.random() * self.blur_s, one.at
            at = one.at + moved
            fewer = held and one.machines < there
            if fewer and random.random() >= _spared(there, one.machines, self.machines):
                held, hit_at = False, at
            there = one.machines
            if not held and there >= self.machines:
                if hit_at < math.inf:
                    yield Outage(at=hit_at, ready=at)
                held = True
        if not held and hit_at < math.inf:
            yield Outage(at=hit_at, ready=math.inf)


def _spared(before: int, after: int, held: int) -> float:
    """How likely none of ``held`` machines is among those that went: C(after, held) / C(before, held)."""
    if after < held:
        return 0.0
    ways = (math.lgamma(n + 1) - math.lgamma(n - held + 1) for n in (after, before))
    return math.exp(next(ways) - next(ways))
