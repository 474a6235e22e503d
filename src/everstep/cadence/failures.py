"""How often a training is interrupted, and how often that is announced: estimates from what was seen."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from everstep.cadence.cadence import Life
from everstep.cadence.interval import checked_share, checked_time
from everstep.errors import UsageError

__all__ = ["FailureRate", "NoticeChance", "Seen", "gamma_cdf", "gamma_quantile", "seen"]


_ABSURD_S = 10 * 365 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What lives of a run show: ``lost`` and ``announced`` interruptions in ``up_s`` seconds of training."""

    lost: int
    announced: int
    up_s: float

    @property
    def events(self) -> int:
        """Interruptions of both kinds."""
        return self.lost + self.announced


def seen(lives: Iterable[Life]) -> Seen:
    """Count the interruptions and the uptime of some attempts.

    Spells that did not end in an interruption (running, finished) are censored: their time counts, they are no event.
    An attempt that died before it saved anything (``up_s`` 0) is left out: that is how a script is debugged, and no
    interval would have helped it. So is one of more than ten years: a clock was set.
    """
    told = [life for life in lives if 0 < life.up_s < _ABSURD_S]
    return Seen(
        lost=sum(life.ended == "lost" for life in told),
        announced=sum(life.ended == "noticed" for life in told),
        up_s=math.fsum(life.up_s for life in told),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRate:
    """A Gamma distribution of the rate of interruptions: ``shape`` events in ``exposure_s`` seconds, so to speak.

    Times between interruptions are taken as exponential; Gamma is then conjugate, and a censored spell adds its time
    and no event. Source: A. Gelman et al., Bayesian Data Analysis, 3rd edition 2013, section 2.6 (exponential model).
    """

    shape: float
    exposure_s: float

    def __post_init__(self) -> None:
        checked_time("exposure_s", self.exposure_s)
        if not (math.isfinite(self.shape) and self.shape > 0):
            raise UsageError(f"shape={self.shape!r} is out of bounds", hint="give a number of events above 0")

    @classmethod
    def prior(cls, mtbf_s: float, *, weight: float = 1.0) -> FailureRate:
        """What is thought before anything was seen: a mean rate of ``1 / mtbf_s`` that counts as ``weight`` events."""
        return cls(shape=weight, exposure_s=weight * checked_time("mtbf_s", mtbf_s))

    def observed(self, events: int, up_s: float) -> FailureRate:
        """The posterior after ``events`` interruptions in ``up_s`` seconds, those of the running spell included."""
        if isinstance(events, bool) or not isinstance(events, int) or events < 0:
            raise UsageError(f"events={events!r} is no count", hint="give a whole number from 0 on")
        return FailureRate(
            shape=self.shape + events, exposure_s=self.exposure_s + checked_time("up_s", up_s, zero=True)
        )

    @property
    def mean(self) -> float:
        """The expected rate, in interruptions per second."""
        return self.shape / self.exposure_s

    @property
    def mtbf_s(self) -> float:
        """One over the expected rate, in seconds."""
        return self.exposure_s / self.shape

    def mtbf_quantile(self, probability: float) -> float:
        """The MTBF in seconds that the true one is below with this probability: 0.25 gives the lower quartile."""
        return self.exposure_s / gamma_quantile(1 - probability, self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeChance:
    """A Beta distribution of the probability that an interruption is announced in time to be saved.

    Source: conjugate to the binomial; Gelman et al. 2013, section 2.4.
    """

    announced: float
    lost: float

    def __post_init__(self) -> None:
        if not (0 < self.announced < math.inf and 0 < self.lost < math.inf):
            raise UsageError(
                f"announced={self.announced!r}, lost={self.lost!r} are no weights",
                hint="give numbers above 0",
            )

    def observed(self, *, announced: int, lost: int) -> NoticeChance:
        """The posterior after so many interruptions of each kind."""
        if announced < 0 or lost < 0:
            raise UsageError(f"announced={announced!r}, lost={lost!r} are no counts", hint="count from 0 on")
        return NoticeChance(announced=self.announced + announced, lost=self.lost + lost)

    @property
    def mean(self) -> float:
        """The expected probability."""
        return self.announced / (self.announced + self.lost)


def gamma_cdf(x: float, shape: float) -> float:
    """The regularised lower incomplete gamma function P(shape, x), to about 1e-12.

    A series below ``shape + 1``, a continued fraction above. Source: Abramowitz and Stegun, Handbook of Mathematical
    Functions, 1964, 6.5.29 and 6.5.31; the fraction evaluated by Lentz's method.
    """
    if x <= 0:
        return 0.0
    scale = math.exp(shape * math.log(x) - x - math.lgamma(shape))
    if x < shape + 1:
        term = total = 1 / shape
        n = shape
        while term > total * 1e-16:
            n += 1
            term *= x / n
            total += term
        return min(1.0, scale * total)
    b, tiny = x + 1 - shape, 1e-300
    c, d = 1 / tiny, 1 / b
    fraction = d
    for i in range(1, 100_000):
        a = i * (shape - i)
        b += 2
        d = 1 / (a * d + b or tiny)
        c = b + a / c or tiny
        fraction *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return max(0.0, 1 - scale * fraction)


@lru_cache(maxsize=64)
def gamma_quantile(probability: float, shape: float) -> float:
    """The x with ``gamma_cdf(x, shape) == probability``, to a relative 1e-9, by halving."""
    if not 0 < checked_share("probability", probability) < 1:
        raise UsageError(
            f"probability={probability!r} has no quantile", hint="give more than 0 and less than 1"
        )
    low, high = -1.0, math.log(shape + 1)
    while gamma_cdf(math.exp(low), shape) > probability:
        low = 2 * low
    while gamma_cdf(math.exp(high), shape) < probability:
        high += 1
    while high - low > 1e-10:
        middle = (low + high) / 2
        if gamma_cdf(math.exp(middle), shape) < probability:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)
