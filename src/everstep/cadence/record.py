"""What a checkpoint tells of its cadence: why it was saved, what was decided, and what saves have cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from everstep.cadence.cadence import Decision, Measured
from everstep.format.index import Meta
from everstep.format.values import decode, encode

__all__ = ["as_record", "measured_before"]


def as_record(
    why: str, *, interval_s: float, decisions: Sequence[Decision], measured: Measured | None
) -> Any:
    """The encoded value that goes into `Meta.cadence`."""
    return encode(
        {
            "why": why,
            "interval_s": interval_s,
            "decisions": [asdict(one) for one in decisions],
            "measured": None if measured is None else asdict(measured),
        }
    )


def measured_before(meta: Meta) -> Measured | None:
    """What the last save before this checkpoint had cost, so that a launch need not measure first; None if untold."""
    told = decode(meta.cadence)
    measured = told.get("measured") if isinstance(told, dict) else None
    if not isinstance(measured, dict):
        return None
    numbers = {
        one.name: measured[one.name]
        for one in fields(Measured)
        if isinstance(measured.get(one.name), int | float)
    }
    return Measured(**numbers) if len(numbers) == len(fields(Measured)) else None
