"""Why a checkpoint was saved, and what the cadence had decided: the part of ``everstep show`` that tells it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everstep.format.manifest import Manifest

__all__ = ["cadence_fields", "cadence_lines"]


def cadence_fields(manifest: Manifest) -> dict[str, object]:
    """``reason``, ``why`` in words, ``interval_s``, and ``decisions`` since the save before."""
    from everstep.format.values import decode

    told = decode(manifest.meta.cadence)
    fields = told if isinstance(told, dict) else {}
    decisions = fields.get("decisions")
    return {
        "reason": manifest.meta.reason,
        "why": fields.get("why", ""),
        "interval_s": fields.get("interval_s"),
        "decisions": decisions if isinstance(decisions, list) else [],
    }


def cadence_lines(fields: dict[str, object]) -> Iterator[str]:
    """The same for people: a line for the save, and one for each decision."""
    if fields["reason"]:
        yield f"saved       {fields['reason']}: {fields['why']}"
    decisions = fields["decisions"]
    assert isinstance(decisions, list)
    for decision in decisions:
        if isinstance(decision, dict):
            yield (
                f"interval    {_seconds(decision.get('to_s'))} from step {decision.get('step')} on,"
                f" {_seconds(decision.get('from_s'))} before: {decision.get('why')}"
            )


def _seconds(value: object) -> str:
    return f"{value:.0f} s" if isinstance(value, int | float) and value < float("inf") else "unknown"
