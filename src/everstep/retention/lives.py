"""How long a retention policy keeps packs, and whether a rule that moves old ones to a cheaper tier then pays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from everstep.retention.policy import Policy
from everstep.retention.rules import (
    KeepDaily,
    KeepHourly,
    KeepLast,
    KeepMonthly,
    KeepWeekly,
    KeepWithin,
    Rule,
)
from everstep.retention.tiers import Tier, breaks_even_days

__all__ = ["Fit", "Verdict", "fit", "kept_days"]

_DAY_S = 86_400.0
_PERIOD_DAYS: dict[type, float] = {KeepHourly: 1 / 24, KeepDaily: 1.0, KeepWeekly: 7.0, KeepMonthly: 30.5}


class Verdict(StrEnum):
    """What a rule that moves packs at some age would do."""

    FITS = "fits"
    NEVER = "never acts"
    DEAR = "costs more than it saves"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The verdict in words, the days that the policy keeps a pack (infinite: no end; None: cannot be told)."""

    verdict: Verdict
    words: str
    days: float | None


def kept_days(policy: Policy | None, interval_s: float | None) -> float | None:
    """The longest that a policy keeps a checkpoint, in days; infinite where no rule ends, None where nobody can tell.

    ``interval_s`` is the time between saves, which ``last N`` counts by. Packs that a newer checkpoint shares live as
    long as that one. Budgets only shorten it.
    """
    if policy is None or policy.keeps_all:
        return math.inf
    if not policy.keeping:
        return None  # a budget alone: as long as there is room
    lives = [_rule_days(rule, interval_s) for rule in policy.keeping]
    known = [days for days in lives if days is not None]
    if math.inf in known:
        return math.inf
    return max(known) if len(known) == len(lives) else None


def _rule_days(rule: Rule, interval_s: float | None) -> float | None:
    if isinstance(rule, KeepLast):
        return None if interval_s is None else rule.n * interval_s / _DAY_S
    if isinstance(rule, KeepWithin):
        return rule.seconds / _DAY_S
    if isinstance(rule, KeepHourly | KeepDaily | KeepWeekly | KeepMonthly):
        return rule.n * _PERIOD_DAYS[type(rule)]
    return math.inf  # best, every, tagged, verified: for as long as they are so


def fit(policy: Policy | None, interval_s: float | None, tier: Tier, cool_after_days: float) -> Fit:
    """Whether moving packs to ``tier`` at that age pays under this policy."""
    days, least = kept_days(policy, interval_s), breaks_even_days(tier, cool_after_days)
    named = "it keeps everything" if policy is None or policy.keeps_all else f"it keeps {policy}"
    pays = f"{tier.name} after {cool_after_days:g} days pays for packs that live {least:.0f} days and more"
    if math.isinf(least):
        return Fit(verdict=Verdict.DEAR, words=f"{tier.name} is not cheaper", days=days)
    if days is None:
        return Fit(verdict=Verdict.UNKNOWN, words=f"{named}; {pays}", days=days)
    if math.isinf(days):
        return Fit(verdict=Verdict.FITS, words=f"{named}, some of it without an end; {pays}", days=days)
    lives = f"{named}, so packs live {_days(days)}"
    if days <= cool_after_days:
        words = f"{lives}, and a rule at {cool_after_days:g} days never acts"
        return Fit(verdict=Verdict.NEVER, words=words, days=days)
    if days < least:
        billed = (
            f"{tier.name} is billed for {tier.minimum_days} days at least: it pays from {least:.0f} days on"
        )
        return Fit(verdict=Verdict.DEAR, words=f"{lives}; {billed}", days=days)
    return Fit(verdict=Verdict.FITS, words=f"{lives}; {pays}", days=days)


def _days(days: float) -> str:
    return f"{days * 24:.1f} hours" if days < 1 else f"{days:.0f} day{'' if round(days) == 1 else 's'}"
