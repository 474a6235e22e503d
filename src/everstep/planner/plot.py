"""The chart as a file: goodput and cost by interval."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from everstep.cadence.durations import spoken
from everstep.errors import UsageError
from everstep.planner.answer import Answer, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["check_chart", "draw"]

_KINDS = (".svg", ".png")


def check_chart(path: Path) -> None:
    """Refuse a chart that could not be drawn, before anything is reckoned. Raises `UsageError`."""
    if path.suffix.lower() not in _KINDS:
        raise UsageError(
            f"--chart {path}: a chart is a file that ends in {' or '.join(_KINDS)}",
            hint="write --chart plan.svg",
            path=str(path),
        )
    if not path.parent.is_dir():
        raise UsageError(
            f"--chart {path}: there is no folder {path.parent}", hint="name a file in a folder that is there"
        )
    try:
        import matplotlib.figure  # noqa: F401, PLC0415 - an extra: only charts need it
    except ImportError:
        raise UsageError(
            "charts need matplotlib, which is not installed", hint='pip install "everstep[plot]"'
        ) from None


def draw(answer: Answer, path: Path) -> None:
    """Write the chart, SVG or PNG by the file's name; the same answer makes the same SVG."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra: only charts need it
    from matplotlib.figure import Figure  # noqa: PLC0415 - the same

    check_chart(path)
    best = answer.recommended
    with mpl.rc_context({"svg.hashsalt": "everstep", "font.size": 9}):
        figure = Figure(figsize=(8, 6), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True)
        rows = _of(answer.rows, best.keep)
        x = [row.interval_s / 60 for row in rows]
        above.plot(x, [100 * row.brings.goodput for row in rows], marker="o", color="black", label="goodput")
        above.axvline(best.interval_s / 60, linestyle="--", color="tab:green", label="recommended")
        above.set_ylabel("useful work, % of the time")
        above.legend(loc="best")
        shares = ("stalled", "slowed", "lost", "down")
        parts = [[100 * getattr(row.brings, name) for row in rows] for name in shares]
        names = ["stalls", "slower steps", "work lost", "restarts"]
        below.stackplot(x, parts, labels=names, alpha=0.8)
        below.set_ylabel("brings nothing, % of the time")
        below.set_xlabel("from one save to the next")
        below.set_xscale("log")
        below.set_xticks(x, labels=[spoken(row.interval_s) for row in rows], rotation=45)
        below.minorticks_off()
        below.legend(loc="best")
        if any(row.store for row in answer.rows):
            _draw_costs(above.twinx(), answer)
        figure.suptitle(f"everstep plan ({answer.method})")
        figure.savefig(path, format=path.suffix[1:].lower(), metadata=_undated(path))


def _draw_costs(axes: Axes, answer: Answer) -> None:
    """A line for each retention."""
    for keep in dict.fromkeys(row.keep for row in answer.rows):
        rows = _of(answer.rows, keep)
        axes.plot(
            [row.interval_s / 60 for row in rows],
            [row.store for row in rows],
            linestyle=":",
            marker=".",
            label=f"store: {keep}",
        )
    axes.set_ylabel("store, dollars a month")
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower center")


def _of(rows: Sequence[Row], keep: str) -> list[Row]:
    return [row for row in rows if row.keep == keep]


def _undated(path: Path) -> dict[str, str | None]:
    return {"Date": None} if path.suffix.lower() == ".svg" else {}
