"""A training on a virtual clock: steps, saves in the background, interruptions, launches."""

from __future__ import annotations

import bisect
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from everstep.cadence import Cadence, Decision, Life, Measured, Moment

__all__ = ["Cost", "Trained", "failures", "train"]


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a save takes, in seconds: a standstill, slower steps, and until it is durable."""

    stall_s: float
    slowed_s: float = 0.0
    durable_s: float = 10.0


@dataclass(kw_only=True)
class Trained:
    """What came of a training: seconds of progress that lasted, of saving, and of all; and what was decided."""

    progress_s: float = 0.0
    saving_s: float = 0.0
    wall_s: float = 0.0
    saves: int = 0
    decisions: list[Decision] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)

    @property
    def waste(self) -> float:
        """The share of the time that was lost."""
        return 1 - self.progress_s / self.wall_s

    @property
    def overhead(self) -> float:
        """The share of the time that saves took."""
        return self.saving_s / self.wall_s


def failures(mtbf_s: float, *, until: float, seed: int) -> list[float]:
    """Moments of interruptions without memory."""
    chance, moments, at = random.Random(seed), [], 0.0
    while at < until:
        at += chance.expovariate(1 / mtbf_s)
        moments.append(at)
    return moments


def train(
    cadence: Callable[[], Cadence],
    *,
    hours: float,
    interruptions: Sequence[float] = (),
    cost: Callable[[float], Cost],
    step_s: float = 10.0,
    restart_s: float = 180.0,
    noticed: Callable[[int], bool] = lambda _number: False,
) -> Trained:
    """Train for ``hours`` of wall time; interruptions come at given moments, and each launch has its own cadence.

    A launch begins where the newest durable save stood. An interruption that was ``noticed`` loses no work.
    """
    result, wall, end = Trained(), 0.0, hours * 3600
    while wall < end:
        number = bisect.bisect_right(interruptions, wall)
        until = min(interruptions[number] if number < len(interruptions) else end, end)
        told = until < end and noticed(number)
        began, lasting = (
            wall,
            _life(cadence(), result, began=wall, until=until, cost=cost, step_s=step_s, told=told),
        )
        result.progress_s += lasting
        ended = "running" if until >= end else "noticed" if told else "lost"
        result.lives.append(Life(attempt=len(result.lives) + 1, up_s=until - began, ended=ended))
        wall = until + restart_s
    result.wall_s = wall
    return result


def _life(
    cadence: Cadence,
    result: Trained,
    *,
    began: float,
    until: float,
    cost: Callable[[float], Cost],
    step_s: float,
    told: bool,
) -> float:
    """One launch: seconds of progress that lasted."""
    cadence.learn(tuple(result.lives))
    wall, last, step, progress, lasting = began, began, 0, 0.0, 0.0
    under_way: tuple[float, float, Measured] | None = None
    beside = 0.0
    while wall < until:
        wall += step_s + beside
        beside = 0.0
        if wall > until:
            break
        step += 1
        progress += step_s
        if under_way and wall >= under_way[0]:
            lasting = under_way[1]
            cadence.learn(under_way[2])
            under_way = None
        result.decisions += cadence.decisions()
        if cadence.due(Moment(step=step, since_s=wall - last, step_s=step_s, at=wall)):
            if under_way:  # the save before must end first
                result.saving_s += max(0.0, under_way[0] - wall)
                wall = max(wall, under_way[0])
                lasting = under_way[1]
                cadence.learn(under_way[2])
            takes = cost(wall)
            last = wall
            wall += takes.stall_s
            beside = takes.slowed_s
            result.saving_s += takes.stall_s + takes.slowed_s
            result.saves += 1
            measured = Measured(
                step=step,
                stall_s=takes.stall_s,
                durable_s=takes.durable_s,
                slowed_s=takes.slowed_s,
                bytes=10**9,
                stored_bytes=10**9,
                at=last,
            )
            under_way = (last + takes.durable_s, progress, measured)
    if under_way and under_way[0] <= until:
        lasting = under_way[1]
    return progress if told or until >= 1e18 else lasting
