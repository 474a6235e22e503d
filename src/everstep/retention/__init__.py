"""What to keep, and why; deleting the rest as safely as it was saved."""

from everstep.retention.choice import Candidate, Choice, Verdict, choose
from everstep.retention.policy import Policy, parse_keep
from everstep.retention.rules import (
    AtMostBytes,
    AtMostMoney,
    KeepBest,
    KeepDaily,
    KeepEvery,
    KeepHourly,
    KeepLast,
    KeepMonthly,
    KeepTagged,
    KeepVerified,
    KeepWeekly,
    KeepWithin,
    Rule,
)

__all__ = [
    "AtMostBytes",
    "AtMostMoney",
    "Candidate",
    "Choice",
    "KeepBest",
    "KeepDaily",
    "KeepEvery",
    "KeepHourly",
    "KeepLast",
    "KeepMonthly",
    "KeepTagged",
    "KeepVerified",
    "KeepWeekly",
    "KeepWithin",
    "Policy",
    "Rule",
    "Verdict",
    "choose",
    "parse_keep",
]
