"""When to save."""

from everstep.cadence.every import Cadence, EverySeconds, EverySteps, Never, parse_every

__all__ = ["Cadence", "EverySeconds", "EverySteps", "Never", "parse_every"]
