"""What an interval brings in the mean, in closed form, when outages have no memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

from everstep.cadence.simulate import Job, Notice

__all__ = ["Expected", "expect"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Shares of the time, which add up to 1 with what restarts and notices take, and work lost by one outage.

    ``goodput`` is useful work; ``lost`` work done again; ``stalled`` and ``slowed`` what saves cost.
    """

    goodput: float
    stalled: float
    slowed: float
    lost: float
    down: float
    lost_per_outage_s: float


def expect(job: Job, *, rate: float, notice: Notice | None = None) -> Expected:
    """The mean of what `simulate` plays with `Exponential` outages, ``rate`` a second for the whole job.

    Outages come at the times of a Poisson process, so what happens between two of them is a cycle of the mean length
    1/rate, and training is reached with the probability exp(-rate R), R the restart (Daly 2006 counts failures during
    a restart in the same way). With q = exp(-rate T) for an interval T, a save is reached k times with probability
    q^k, and durable D later with exp(-rate D) of that; summing work over k gives

        saved = exp(-rate D) (T q + (T - stall - slowed) q^2 / (1 - q))

    and the work done until an outage is the integral of the working speed over exp(-rate t). A notice that saves, for a
    share of the outages, keeps all work but ends training ``ahead_s`` earlier, and the next restart begins ``ahead_s -
    save_s`` earlier. That is exact while this is shorter than a restart, and nearly so else.
    """
    notice = notice or Notice()
    if rate <= 0:
        return _undisturbed(job)
    interval, saves = job.interval_s, notice.saves
    q = math.exp(-rate * interval)
    again = q / -math.expm1(-rate * interval)  # saves begun before an outage, in the mean
    upload_s = job.durable_s - job.stall_s
    stalled = again * -math.expm1(-rate * job.stall_s) / rate
    slowing = math.exp(-rate * job.stall_s) * -math.expm1(-rate * upload_s) / rate
    slowed = again * slowing * (job.slowed_s / upload_s if upload_s > 0 else 0.0)
    done = 1 / rate - stalled - slowed
    per_save = interval - job.stall_s - job.slowed_s
    saved = math.exp(-rate * job.durable_s) * q * (interval + per_save * again)
    until_notice = saves * math.exp(-rate * notice.ahead_s)
    restarted = math.exp(-rate * job.restart_s)
    # after a notice the restart begins when the save is durable, before the outage itself
    earlier = saves * math.exp(-rate * notice.save_s) - until_notice
    reached = restarted / (1 - restarted * earlier)
    trained = rate * reached * (1 - saves + until_notice)
    goodput = rate * reached * ((1 - saves) * saved + until_notice * done)
    lost = rate * reached * (1 - saves) * (done - saved)
    return Expected(
        goodput=goodput,
        stalled=trained * stalled,
        slowed=trained * slowed,
        lost=lost,
        down=1 - goodput - lost - trained * (stalled + slowed),
        lost_per_outage_s=lost / rate,
    )


def _undisturbed(job: Job) -> Expected:
    """Nothing is ever lost: only saves cost."""
    stalled, slowed = job.stall_s / job.interval_s, job.slowed_s / job.interval_s
    return Expected(
        goodput=1 - stalled - slowed,
        stalled=stalled,
        slowed=slowed,
        lost=0.0,
        down=0.0,
        lost_per_outage_s=0.0,
    )
