"""``everstep du``: where the bytes of a store are, by run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from everstep.cli import output, places
from everstep.cli.options import json_option, run_option, store_option
from everstep.cli.pricing import money_text, prices_for
from everstep.errors import RunNotFound

if TYPE_CHECKING:
    from everstep.prices import Prices
    from everstep.repository.repository import Repository
    from everstep.retention.space import RunSpace, Space

__all__ = ["command"]

_WORTH = 0.01
"""The part of a store's bytes that a repack must free to be worth a hint."""

_SHOWN = 5


@click.command("du")
@click.argument("run_name", metavar="[RUN]", required=False)
@store_option
@run_option
@click.option("--deep", is_flag=True, help="Also find dead bytes inside packs: reads indexes.")
@click.option(
    "--prices", metavar="NAME", help="What the store costs.  [default: the usual tier of its cloud]"
)
@json_option
def command(
    run_name: str | None,
    store: str | None,
    run: str | None,
    *,
    deep: bool,
    prices: str | None,
    as_json: bool,
) -> None:
    """Show where a store's bytes are, by run: stored, shared, waiting, garbage.

    Costs one list of the store's packs, and two small reads for each checkpoint; --deep also reads the indexes of
    checkpoints that need packs of pruned ones.
    """
    from everstep.retention.space import space

    repository = places.opened(store)
    named = run_name or run
    price = prices_for(prices, repository.store.url)
    try:
        found = space(repository, named, deep=deep)
    except RunNotFound as error:
        raise places.with_near_runs(repository, error, named or "") from None
    rows = [one for one in found.runs if named is None or one.run == named]
    if as_json:
        output.document(_document(found, rows, price, whole=named is None))
    else:
        _print(repository, found, rows, price, whole=named is None)


def _money(count: int, price: Prices | None) -> float | None:
    from everstep.prices import BILLED_GB

    return None if price is None else count / BILLED_GB * price.gb_month


def _document(found: Space, rows: list[RunSpace], price: Prices | None, *, whole: bool) -> dict[str, object]:
    document: dict[str, object] = {
        "runs": [
            {
                "run": one.run,
                "checkpoints": one.checkpoints,
                "logical_bytes": one.logical,
                "stored_bytes": one.stored,
                "shared_bytes": one.shared,
                "alone_bytes": one.alone,
                "waiting_bytes": one.waiting,
                "under_way_bytes": one.under_way,
                "garbage_bytes": one.garbage,
                "dead_bytes": one.dead,
                "stored_per_month": _money(one.stored, price),
                "alone_per_month": _money(one.alone, price),
            }
            for one in rows
        ],
        "missing": list(found.missing),
        "damage": [output.jsonable(error.message) for error in found.damage],
        "prices": None
        if price is None
        else {
            "name": price.name,
            "as_of": str(price.as_of),
            "source": price.source,
            "gb_month": price.gb_month,
        },
    }
    if whole:
        document["total"] = {
            "packs": found.packs,
            "bytes": found.total,
            "logical_bytes": found.logical,
            "stored_bytes": found.stored,
            "shared_bytes": found.shared,
            "waiting_bytes": found.waiting,
            "under_way_bytes": found.under_way,
            "garbage_bytes": found.garbage,
            "orphan_bytes": found.orphans,
            "dead_bytes": found.dead,
            "repack_frees_bytes": found.sparse,
            "per_month": _money(found.total, price),
        }
    return document


def _print(
    repository: Repository, found: Space, rows: list[RunSpace], price: Prices | None, *, whole: bool
) -> None:
    headings = [
        "RUN",
        "CHECKPOINTS",
        "LOGICAL",
        "STORED",
        "SHARED",
        "ALONE",
        "WAITING",
        "UNDER WAY",
        "GARBAGE",
    ]
    lines = [
        [
            one.run,
            str(one.checkpoints),
            *_sizes(one.logical, one.stored, one.shared, one.alone, one.waiting, one.under_way, one.garbage),
            *([] if one.dead is None else _sizes(one.dead)),
            *([] if price is None else [money_text(_money(one.stored, price) or 0.0)]),
        ]
        for one in rows
    ]
    if found.dead is not None:
        headings.append("DEAD")
    if price is not None:
        headings.append("A MONTH")
    if whole and rows:
        counts = (found.logical, found.stored, found.shared, found.stored - found.shared)
        more = (found.waiting, found.under_way, found.garbage)
        lines.append(
            [
                "total",
                str(sum(one.checkpoints for one in rows)),
                *_sizes(*counts, *more),
                *([] if found.dead is None else _sizes(found.dead)),
                *([] if price is None else [money_text(_money(found.total, price) or 0.0)]),
            ]
        )
    if not rows:
        output.say(f"{repository.store.url} has no runs yet")
    else:
        output.table(headings, lines, right=headings[1:])
    if whole:
        output.line(f"{found.packs} packs, {output.bytes_text(found.total)}")
    for words in _notes(found):
        output.say(words)


def _sizes(*counts: int) -> list[str]:
    return [output.bytes_text(count) for count in counts]


def _notes(found: Space) -> list[str]:
    """What is worth doing about it."""
    notes = [f"not added up: {error.message}" for error in found.damage]
    if found.missing:
        shown = ", ".join(found.missing[:_SHOWN]) + (" ..." if len(found.missing) > _SHOWN else "")
        packs = (
            "pack that checkpoints need is" if len(found.missing) == 1 else "packs that checkpoints need are"
        )
        notes.append(f"{len(found.missing)} {packs} missing: {shown}")
        notes.append("list what is damaged with: everstep verify")
    if found.garbage:
        notes.append(f"{output.bytes_text(found.garbage)} of garbage goes with: everstep prune")
    if found.sparse and found.sparse >= _WORTH * found.total:
        notes.append(f"{output.bytes_text(found.sparse)} of dead bytes go with: everstep prune --repack")
    return notes
