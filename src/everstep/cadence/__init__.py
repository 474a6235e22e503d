"""When to save."""

from everstep.cadence.cadence import Cadence, Decision, Life, Measured, Moment
from everstep.cadence.every import EverySeconds, EverySteps, Never, parse_every

__all__ = [
    "Cadence",
    "Decision",
    "EverySeconds",
    "EverySteps",
    "Life",
    "Measured",
    "Moment",
    "Never",
    "parse_every",
]
