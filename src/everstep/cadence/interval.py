"""How often to save: the closed forms of the literature. All times are in seconds.

Words: ``cost_s`` is what one save takes from the training (time at a standstill, and what the steps beside the upload
are slower); ``mtbf_s`` the mean time between interruptions; a **period** is the time from the begin of a save to the
begin of the next, its cost included; an **interval of work** is the period without the cost.
"""

from __future__ import annotations

import math

from everstep.errors import UsageError

__all__ = [
    "availability_period",
    "best_period",
    "checked_share",
    "checked_time",
    "checkfreq_steps",
    "daly",
    "effective_rate",
    "goodput",
    "overhead_period",
    "waste",
    "young",
]

_ABSURD_S = 100 * 365 * 86400.0


def young(cost_s: float, mtbf_s: float) -> float:
    """The interval of work that loses least, to first order: ``sqrt(2 d M)``.

    Good while the cost is far below the MTBF. Source: J. W. Young, "A first order approximation to the optimum
    checkpoint interval", Communications of the ACM 17(9), 1974, pp. 530-531. Raises `UsageError` for what is no
    positive time.
    """
    return math.sqrt(2 * _cost(cost_s) * _mtbf(mtbf_s))


def daly(cost_s: float, mtbf_s: float) -> float:
    """The interval of work that loses least, to higher order, for interruptions without memory.

    ``sqrt(2 d M) [1 + 1/3 sqrt(d / 2M) + 1/9 (d / 2M)] - d`` for ``d < 2M``, else ``M``. It is the series of the exact
    solution ``t = M (1 + W(-exp(-1 - d/M)))``, W being Lambert's function; up to ``d = M/2`` it is within 1 % of it.
    Source: J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future
    Generation Computer Systems 22(3), 2006, pp. 303-312.
    """
    cost, mtbf = _cost(cost_s), _mtbf(mtbf_s)
    if cost >= 2 * mtbf:
        return mtbf
    ratio = cost / (2 * mtbf)
    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - cost


def best_period(cost_s: float, mtbf_s: float) -> float:
    """Daly's interval with the save's cost: from the begin of a save to the begin of the next.

    That a checkpoint is durable only a while after its save began, and that a restart takes time, moves this optimum
    nowhere (see `goodput`: both are factors there that do not depend on the period).
    """
    return daly(cost_s, mtbf_s) + cost_s


def availability_period(cost_s: float, mtbf_s: float, *, restart_s: float) -> float:
    """The period with the highest availability when a restart takes ``restart_s``: ``d + sqrt(2 (M + R) d + d^2)``.

    It maximises ``(T - d) / (T + T/M (T/2 + R))``. Source: N. R. Saxena, S. Hukerikar, M. Blaz, S. Raj, "Optimal
    Checkpoint Interval with Availability as an Objective Function", 2024, arXiv:2410.18124. Interruptions are counted
    there per second of progress, so that ``R`` matters; counted per second of uptime it does not.
    """
    cost, mtbf = _cost(cost_s), _mtbf(mtbf_s)
    restart = checked_time("restart_s", restart_s, zero=True)
    return cost + math.sqrt(2 * (mtbf + restart) * cost + cost * cost)


def effective_rate(rate: float, *, announced: float, fits: float = 1.0) -> float:
    """Interruptions per second that lose work: ``rate (1 - p q)``.

    ``announced`` (p) is the share that comes with a notice, ``fits`` (q) the share of notices in which a save becomes
    durable. An interruption that is saved in time loses no work, so it does not count for the interval.
    Source: the rate of a Poisson process from which each event is struck out with probability ``p q``.
    """
    return _rate(rate) * (1 - checked_share("announced", announced) * checked_share("fits", fits))


def overhead_period(cost_s: float, overhead: float) -> float:
    """The shortest period in which saving takes at most the share ``overhead`` of the time: ``d / overhead``.

    Source: J. Mohan, A. Phanishayee, V. Chidambaram, "CheckFreq: Frequent, Fine-Grained DNN Checkpointing", USENIX
    FAST 2021 (there in iterations: `checkfreq_steps`).
    """
    return _cost(cost_s) / checked_share("overhead", overhead, zero=False)


def checkfreq_steps(cost_s: float, step_s: float, *, overhead: float, durable_s: float = 0.0) -> int:
    """The fewest steps between saves that keep the overhead under a bound, and one save at a time under way.

    The smallest ``k`` with ``k step_s >= d / overhead`` and ``k step_s >= durable_s``. Source: CheckFreq, as in
    `overhead_period`: it profiles the first iterations, takes the smallest such ``k`` (its bound: 3.5 %), never lets
    two checkpoints be under way, and adapts while it runs.
    """
    durable = checked_time("durable_s", durable_s, zero=True)
    step = checked_time("step_s", step_s)
    return max(1, math.ceil(max(overhead_period(cost_s, overhead), durable) / step - 1e-9))


def waste(
    period_s: float, *, cost_s: float, rate: float, durable_s: float = 0.0, restart_s: float = 0.0
) -> float:
    """The share of the time that is lost, to first order: ``d/T + rate (T/2 + D + R)``.

    ``rate`` counts interruptions that lose work, per second (`effective_rate`). One that comes at a moment of the
    period like any other finds the newest durable checkpoint ``T/2 + D`` old on average, ``D`` (``durable_s``) being
    the time from the begin of a save until it is durable, at most ``T``. Its minimum over ``T`` is Young's.
    Above 1 nothing gets done. Source: Young 1974, with ``D`` for saves that become durable in the background.
    """
    period = checked_time("period_s", period_s)
    durable = checked_time("durable_s", durable_s, zero=True)
    restart = checked_time("restart_s", restart_s, zero=True)
    return _cost(cost_s) / period + _rate(rate) * (period / 2 + durable + restart)


def goodput(
    period_s: float,
    *,
    cost_s: float,
    mtbf_s: float,
    durable_s: float = 0.0,
    restart_s: float = 0.0,
    kept: float = 0.0,
) -> float:
    """The share of the time that becomes lasting progress; exact for interruptions without memory.

    ``(1 - kept) (T - d) e^(-D/M) / (e^(T/M) - 1) + kept (M - d / (e^(T/M) - 1))``, over ``M + R``. Of a spell of
    training that is exponential with mean ``M``, ``n`` saves are durable in time with probability
    ``e^(-(n T + D) / M)``, each good for ``T - d`` of work; with probability ``kept`` (p q of `effective_rate`) the
    spell is saved at its end. Each spell is followed by a restart of ``R``, in which nothing fails. Source: renewal
    reward as in Daly 2006, section 3, whose ``T - d`` is `daly`'s, with ``D`` and ``kept`` put in.
    """
    period, mtbf = checked_time("period_s", period_s), _mtbf(mtbf_s)
    cost = min(_cost(cost_s), period)
    durable = checked_time("durable_s", durable_s, zero=True)
    restart = checked_time("restart_s", restart_s, zero=True)
    saved = checked_share("kept", kept)
    if period / mtbf > 700:  # e^709 is beyond a float: no save is ever reached
        return saved * mtbf / (mtbf + restart)
    saves = 1 / math.expm1(period / mtbf)
    lost = (1 - saved) * (period - cost) * math.exp(-durable / mtbf) * saves
    return (lost + saved * (mtbf - cost * saves)) / (mtbf + restart)


def checked_time(name: str, seconds: float, *, zero: bool = False) -> float:
    """A time in seconds that can be one: finite, not negative, at most a hundred years. Raises `UsageError`."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        raise UsageError(f"{name}={seconds!r} is no time", hint="give a number of seconds", name=name)
    if seconds < 0 or (seconds == 0 and not zero) or seconds > _ABSURD_S:
        least = "0" if zero else "more than 0"
        raise UsageError(
            f"{name}={seconds!r} is out of bounds",
            hint=f"give seconds: {least}, at most a hundred years",
            name=name,
        )
    return float(seconds)


def checked_share(name: str, share: float, *, zero: bool = True) -> float:
    """A share between 0 and 1. Raises `UsageError`."""
    wrong = isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1
    if wrong or (share == 0 and not zero):
        least = "0" if zero else "more than 0"
        raise UsageError(f"{name}={share!r} is no share", hint=f"give {least} to 1: 0.03 is 3 %", name=name)
    return float(share)


def _rate(rate: float) -> float:
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate < math.inf:
        raise UsageError(f"rate={rate!r} is no rate", hint="give interruptions per second: 1 / MTBF")
    return float(rate)


def _cost(seconds: float) -> float:
    return checked_time("cost_s", seconds)


def _mtbf(seconds: float) -> float:
    return checked_time("mtbf_s", seconds)
