"""When to save."""

from everstep.cadence.anyof import AnyOf
from everstep.cadence.auto import Auto
from everstep.cadence.before import Before
from everstep.cadence.cadence import Cadence, Decision, Life, Measured, Moment
from everstep.cadence.every import Every, parse_every
from everstep.cadence.fixed import At, EverySeconds, EverySteps, Never

__all__ = [
    "AnyOf",
    "At",
    "Auto",
    "Before",
    "Cadence",
    "Decision",
    "Every",
    "EverySeconds",
    "EverySteps",
    "Life",
    "Measured",
    "Moment",
    "Never",
    "parse_every",
]
