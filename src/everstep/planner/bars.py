"""A chart for a terminal: where the time goes that brings nothing, by interval."""

from __future__ import annotations

from collections.abc import Sequence

from everstep.cadence.durations import spoken
from everstep.planner.answer import Row

__all__ = ["bars"]

_WIDTH = 56
LEGEND = "s saves   x work lost and done again   r restarts"


def bars(rows: Sequence[Row], *, recommended: Row, width: int = _WIDTH) -> list[str]:
    """Lines of text, one for each interval, scaled to the worst; ``*`` marks the recommended one.

    Only the first row of an interval counts: what is kept changes nothing here.
    """
    first = {row.interval_s: row for row in reversed(rows)}
    shown = [first[interval_s] for interval_s in sorted(first)]
    worst = max((1 - row.brings.goodput for row in shown), default=0.0)
    labels = [spoken(row.interval_s) for row in shown]
    wide = max(map(len, labels), default=0)
    lines = [f"time that brings nothing, by interval (the longest bar: {worst:.1%})", f"  {LEGEND}"]
    for label, row in zip(labels, shown, strict=True):
        mark = "*" if row.interval_s == recommended.interval_s else " "
        lines.append(f"{mark} {label.rjust(wide)} |{_bar(row, worst, width)} {1 - row.brings.goodput:.1%}")
    return lines


def _bar(row: Row, worst: float, width: int) -> str:
    """Cumulated shares, rounded together, so that the whole bar has the right length."""
    brings = row.brings
    drawn, total, text = 0, 0.0, ""
    for sign, share in (("s", brings.stalled + brings.slowed), ("x", brings.lost), ("r", brings.down)):
        total += share
        ends = round(total / worst * width) if worst > 0 else 0
        text += sign * max(0, ends - drawn)
        drawn = max(drawn, ends)
    return text
