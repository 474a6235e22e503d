"""A plan for people, and as a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from everstep.cli import output
from everstep.cli.pricing import money_text

if TYPE_CHECKING:
    from everstep.planner.answer import Answer, Row
    from everstep.planner.assumed import Assumed
    from everstep.planner.question import Question

__all__ = ["shown", "told"]

_RIGHT = ("GOODPUT", "OVERHEAD", "LOST/FAILURE", "KEPT", "STORED", "STORE/MONTH", "REQUESTS", "USEFUL HOUR")
_SIZES, _RATES, _SHARES = ("state",), ("bandwidth",), ("slowdown", "changed", "notice-chance", "overhead")
_NUMBERS = ("machines", "machine-price")


def shown(question: Question, assumed: Sequence[Assumed], answer: Answer) -> None:
    """The figures it goes by, the table, the recommended pair, and the chart."""
    from everstep.cadence.durations import spoken
    from everstep.planner.bars import bars

    prices, best = question.prices, answer.recommended
    output.table(("FIGURE", "VALUE", "FROM"), [(one.name, _text(one), one.origin) for one in assumed])
    output.line()
    output.line(
        f"a save is durable after {spoken(question.durable_s)} and costs training {spoken(question.cost_s)};"
        f" an outage comes every {spoken(min(question.mtbf_s, 1e10))}"
        f"{_saved_by_notice(question)}"
    )
    output.line(f"goodput: {answer.method}")
    doubtful = f"; unconfirmed: {', '.join(prices.from_memory)}" if prices.from_memory else ""
    output.line(
        f"prices: {prices.name} as of {prices.as_of}{f' ({prices.region})' if prices.region else ''}{doubtful}"
    )
    output.line()
    priced = question.machine_price is not None
    headings = (
        "",
        "EVERY",
        "GOODPUT",
        "OVERHEAD",
        "LOST/FAILURE",
        "KEEP",
        "KEPT",
        "STORED",
        "STORE/MONTH",
        "REQUESTS",
    )
    output.table(
        (*headings, "USEFUL HOUR") if priced else headings,
        [_cells(row, best=row is best, priced=priced) for row in answer.rows],
        right=_RIGHT,
    )
    output.line()
    output.line(f'recommended: every="{_every(best)}", keep="{best.keep}"')
    output.line(f"  by {answer.rule}")
    for note in answer.notes:
        output.line(f"note: {note}")
    output.line()
    for line in bars(answer.rows, recommended=best):
        output.line(line)


def told(question: Question, assumed: Sequence[Assumed], answer: Answer) -> dict[str, object]:
    """The document of ``--json``."""
    prices = question.prices
    return {
        "assumed": [{"name": one.name, "value": one.value, "from": one.origin} for one in assumed],
        "prices": {
            "name": prices.name,
            "region": prices.region,
            "as_of": prices.as_of.isoformat(),
            "source": prices.source,
            "from_memory": list(prices.from_memory),
            "gb_month": prices.gb_month,
        },
        "save": {"durable_s": question.durable_s, "cost_s": question.cost_s, "new_bytes": question.new_bytes},
        "mtbf_s": output.jsonable(question.mtbf_s),
        "saved_by_notice": question.notice.saves,
        "method": answer.method,
        "rule": answer.rule,
        "notes": list(answer.notes),
        "recommended": _fields(answer.recommended),
        "rows": [_fields(row) | {"recommended": row is answer.recommended} for row in answer.rows],
    }


def _fields(row: Row) -> dict[str, object]:
    brings = row.brings
    return {
        "interval_s": row.interval_s,
        "keep": row.keep,
        "goodput": brings.goodput,
        "stalled": brings.stalled,
        "slowed": brings.slowed,
        "lost": brings.lost,
        "down": brings.down,
        "waiting": brings.waiting,
        "lost_per_failure_s": brings.lost_per_outage_s,
        "saves_per_month": row.saves_a_month,
        "within_overhead": row.within,
        "kept": row.kept,
        "stored_bytes": round(row.stored_bytes),
        "storage_per_month": row.storage,
        "requests_per_month": row.requests,
        "useful_hour": row.useful_hour,
    }


def _cells(row: Row, *, best: bool, priced: bool) -> tuple[str, ...]:
    from everstep.cadence.durations import spoken

    cells = (
        "*" if best else "",
        spoken(row.interval_s),
        f"{row.brings.goodput:.2%}",
        f"{'' if row.within else '! '}{row.brings.stalled + row.brings.slowed:.2%}",
        spoken(row.brings.lost_per_outage_s),
        row.keep,
        str(row.kept),
        output.bytes_text(round(row.stored_bytes)),
        money_text(row.storage),
        money_text(row.requests),
    )
    return (*cells, money_text(row.useful_hour) if row.useful_hour is not None else "") if priced else cells


def _text(one: Assumed) -> str:
    from everstep.cadence.durations import spoken

    if one.name in _SIZES:
        return output.bytes_text(round(one.value))
    if one.name in _RATES:
        return f"{output.bytes_text(round(one.value))}/s"
    if one.name in _SHARES:
        return f"{100 * one.value:.3g}%"
    return f"{one.value:g}" if one.name in _NUMBERS else spoken(one.value)


def _saved_by_notice(question: Question) -> str:
    saves = question.notice.saves
    return f", {saves:.0%} of them after a notice in which all is saved" if saves else ""


def _every(row: Row) -> str:
    from everstep.cadence.durations import duration_text

    return duration_text(round(row.interval_s))
