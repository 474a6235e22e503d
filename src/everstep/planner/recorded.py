"""The traces of real spot machines that come with the package, and a user's own."""

from __future__ import annotations

import difflib
from importlib import resources
from pathlib import Path

from everstep.cadence.trace import Trace, parse_trace
from everstep.errors import UsageError

__all__ = ["RECORDED", "trace_of"]

RECORDED = {"bamboo-p2": "hours,machines", "bamboo-g4dn": "seconds,machines", "bamboo-64": ""}
"""The traces in ``planner/traces`` and the heading that their files lack; where they are from is told there."""


def trace_of(named: str) -> Trace:
    """A trace that comes with the package by its name, else the CSV file that is named. Raises `UsageError`."""
    if named in RECORDED:
        text = resources.files("everstep.planner").joinpath("traces", f"{named}.csv").read_text("utf-8")
        return parse_trace(text, name=named, heading=RECORDED[named])
    path = Path(named)
    if not path.is_file():
        near = difflib.get_close_matches(named, RECORDED, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise UsageError(
            f"there is no trace {named}",
            hint=f"{meant}name a CSV file with the columns time,machines, or one of {', '.join(RECORDED)}",
            trace=named,
        )
    try:
        return parse_trace(path.read_text("utf-8-sig"), name=named)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"the trace {named} cannot be read: {error}", hint="name a CSV file", trace=named
        ) from None
