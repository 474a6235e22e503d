"""``everstep diff``: two checkpoints, leaf by leaf."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from everstep.cli import output, places
from everstep.cli.describe import checkpoint_fields, checkpoint_words
from everstep.cli.options import json_option, quiet_option, run_option, store_option
from everstep.cli.progress import progress

if TYPE_CHECKING:
    from everstep.repository.checkpoint import Checkpoint
    from everstep.transfer.compare import Comparison, Difference

__all__ = ["command"]

_FINDINGS = 10


@click.command("diff")
@click.argument("a")
@click.argument("b")
@store_option
@click.option("--store-b", metavar="URL", help="The store of B, when it is another one.")
@run_option
@click.option(
    "--select", "patterns", metavar="PATTERN", multiple=True, help="Only these leaves (may repeat)."
)
@quiet_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    a: str,
    b: str,
    *,
    store: str | None,
    store_b: str | None,
    run: str | None,
    patterns: tuple[str, ...],
    quiet: bool,
    as_json: bool,
) -> None:
    """Compare two checkpoints leaf by leaf.

    Equal means equal to the bit: NaN equals the same NaN, 0.0 is not -0.0. Tensors whose digests are equal
    are not read. Exits 10 when anything differs.

    PATTERN is a path, all beneath it included (model), or a shell pattern over whole paths (*/bias).
    """
    from everstep.repository.readers import reading_long
    from everstep.transfer.compare import compare
    from everstep.transfer.contents import Contents
    from everstep.transfer.select import selects

    with progress(quiet=quiet) as listener:
        ours = places.opened(store, listener=listener)
        theirs = places.opened(store_b, listener=listener) if store_b else ours
        left, right = places.selected(ours, a, run), places.selected(theirs, b, run)
        with reading_long(ours, left), reading_long(theirs, right):
            comparison = compare(
                Contents(ours, left),
                Contents(theirs, right),
                wanted=lambda path: selects(patterns, path),
                listener=listener,
            )
    if as_json:
        output.document(_fields(left, right, comparison))
    else:
        _print(left, right, comparison)
    ctx.exit(0 if comparison.equal else _FINDINGS)


def _fields(a: Checkpoint, b: Checkpoint, comparison: Comparison) -> dict[str, object]:
    return {
        "a": checkpoint_fields(a),
        "b": checkpoint_fields(b),
        "equal": comparison.equal,
        "leaves": comparison.leaves,
        "bytes_read": comparison.bytes_read,
        "differences": [
            {
                "path": output.jsonable(one.path),
                "change": one.change.value,
                "a": output.jsonable(one.a),
                "b": output.jsonable(one.b),
                "relative": output.jsonable(one.relative),
                "max_abs": output.jsonable(one.max_abs),
                "nan_a": one.nan_a,
                "nan_b": one.nan_b,
                "bytes_a": one.bytes_a,
                "bytes_b": one.bytes_b,
                "bytes_changed": one.bytes_changed,
            }
            for one in comparison.differences
        ],
    }


def _print(a: Checkpoint, b: Checkpoint, comparison: Comparison) -> None:
    names = f"{checkpoint_words(a)} and {checkpoint_words(b)}"
    if comparison.equal:
        output.line(f"{names} are equal to the bit in {comparison.leaves} leaves")
        return
    rows = [
        (one.path, _what(one), _number(one.relative), _number(one.max_abs), _nan(one), _bytes(one))
        for one in comparison.differences
    ]
    numbers = ("RELATIVE", "MAX ABS", "NAN", "BYTES")
    output.table(("LEAF", "CHANGE", *numbers), rows, right=numbers)
    output.say(f"{names} differ in {len(rows)} places, of {comparison.leaves} leaves")


def _what(one: Difference) -> str:
    sides = [side if len(side) <= 40 else f"{side[:37]}..." for side in (one.a or "-", one.b or "-")]
    if sides[0] == sides[1]:
        return sides[0]
    return f"{sides[0]} -> {sides[1]}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _nan(one: Difference) -> str:
    return f"{one.nan_a} -> {one.nan_b}" if one.nan_a or one.nan_b else ""


def _bytes(one: Difference) -> str:
    return output.bytes_text(one.bytes_changed) if one.bytes_changed else ""
