"""``everstep show``: one checkpoint, from its manifest alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from everstep.cli import output, places
from everstep.cli.describe import checkpoint_fields, checkpoint_words
from everstep.cli.options import json_option, run_option, store_option
from everstep.cli.tree import Node, entry_fields, state_tree
from everstep.cli.why import cadence_fields, cadence_lines

if TYPE_CHECKING:
    from everstep.format.manifest import Manifest
    from everstep.repository.checkpoint import Checkpoint
    from everstep.repository.repository import Repository

__all__ = ["command"]

_MANY = 200
_FEW = 20
"""Of more children than these, so many are shown; ``--all`` shows the rest."""
_WIDE = 60
"""Characters of a plain value that a line of the tree shows."""


@click.command("show")
@click.argument("checkpoint", metavar="[RUN[@STEP]]", required=False)
@store_option
@run_option
@click.option(
    "--depth", type=click.IntRange(min=1), default=2, show_default=True, help="Levels of the state."
)
@click.option("--all", "whole", is_flag=True, help="The state tree in full.")
@json_option
def command(
    checkpoint: str | None, store: str | None, run: str | None, depth: int, *, whole: bool, as_json: bool
) -> None:
    """Show one checkpoint: state, sizes, metrics, configuration, lineage.

    Reads its manifest, not its tensors.
    """
    from everstep.repository.reading import read_manifest

    repository = places.opened(store)
    shown = places.selected(repository, checkpoint, run)
    manifest = read_manifest(repository, shown)
    lineage = _lineage(repository, shown, manifest)
    cadence = cadence_fields(manifest)
    config, architecture = _config(manifest), manifest.meta.architecture
    if as_json:
        output.document(
            {
                "checkpoint": checkpoint_fields(shown),
                "config": output.jsonable(config),
                "architecture": output.jsonable(architecture),
                "not_finite": list(manifest.meta.not_finite),
                "cadence": output.jsonable(cadence),
                "lineage": lineage,
                "leaves": [entry_fields(entry) for entry in manifest.entries],
            }
        )
        return
    _head(shown, lineage)
    for line in cadence_lines(cadence):
        output.line(output.printable(line))
    _facts("metrics", shown.metrics)
    if config is not None:
        _facts("config", config)
    if architecture is not None:
        _facts("architecture", architecture)
    if manifest.meta.not_finite:
        output.line(f"not finite  {' '.join(manifest.meta.not_finite)}")
    output.line()
    _print_tree(state_tree(manifest.entries), depth=None if whole else depth)


def _config(manifest: Manifest) -> object:
    from everstep.format.values import decode

    return decode(manifest.meta.config)


def _lineage(repository: Repository, shown: Checkpoint, manifest: Manifest) -> dict[str, object]:
    """Where it came from: the checkpoint it was forked from, the launches of its run, whose packs it shares."""
    from everstep.repository.fence import attempts_after, read_attempt
    from everstep.repository.keys import save_of_pack

    saves = sorted({str(save) for key in manifest.packs if (save := save_of_pack(key)) is not None})
    return {
        "forked_from": checkpoint_fields(shown)["forked_from"],
        "attempts": [
            {
                "attempt": record.attempt,
                "created": record.created,
                "owner": output.jsonable(record.owner),
                "world": record.world,
                "resumed_from": record.resumed_from or None,
                "every": record.every,
                "keep": record.keep,
            }
            for number in attempts_after(repository, shown.run, 0)
            if (record := read_attempt(repository, shown.run, number))
        ],
        "shares_bytes_with": [save for save in saves if save != str(shown.save)],
        "packs": len(manifest.packs),
    }


def _head(shown: Checkpoint, lineage: dict[str, object]) -> None:
    attempts = lineage["attempts"]
    shares = lineage["shares_bytes_with"]
    assert isinstance(attempts, list)
    assert isinstance(shares, list)
    output.line(click.style(output.printable(checkpoint_words(shown)), bold=True))
    stored = f"{output.bytes_text(shown.stored_bytes)} of them stored by this save"
    output.line(
        f"created     {output.time_text(shown.created)} by attempt {shown.attempt} of {len(attempts)}"
    )
    packs = "1 pack" if lineage["packs"] == 1 else f"{lineage['packs']} packs"
    output.line(f"state       {output.bytes_text(shown.bytes)}, {stored}, {packs}")
    output.line(f"world       {shown.world} {'rank' if shown.world == 1 else 'ranks'}")
    if shares:
        output.line(f"shares with {len(shares)} other {'save' if len(shares) == 1 else 'saves'}")
    if shown.forked_from is not None:
        output.line(f"forked from {shown.forked_from.run}, save {shown.forked_from.save}")
    if shown.tags:
        output.line(f"tags        {' '.join(shown.tags)}")


def _facts(title: str, facts: object) -> None:
    """A title, and beneath it what it holds, two levels deep."""
    if not isinstance(facts, dict):
        output.line(f"{title:<12}{output.printable(repr(facts))}")
        return
    if not facts:
        return
    output.line(title)
    for name, value in facts.items():
        if title == "config" or value not in (None, {}, [], ()):
            output.line(f"  {output.printable(str(name))}: {output.printable(_fact(value))}")


def _fact(value: object) -> str:
    """A value of a record; a dict of plain values in one line."""
    if isinstance(value, dict) and not any(isinstance(item, dict | list) for item in value.values()):
        return " ".join(f"{name}={item}" for name, item in value.items())
    return _short(value)


def _short(value: object) -> str:
    if isinstance(value, dict | list) and len(repr(value)) > _WIDE:
        things = "entries" if isinstance(value, dict) else "items"
        return f"({len(value)} {things})"
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _WIDE else f"{text[: _WIDE - 3]}..."


def _print_tree(root: Node, *, depth: int | None) -> None:
    rows: list[tuple[str, str, str]] = []
    _rows(root, 0, depth, rows)
    output.table(("LEAF", "WHAT", "BYTES"), rows, right=("BYTES",))


def _rows(node: Node, level: int, depth: int | None, rows: list[tuple[str, str, str]]) -> None:
    folded = bool(node.children) and depth is not None and level >= depth
    size = output.bytes_text(node.bytes) if node.bytes else ""
    what = _short(node.what)
    if node.children:
        what += f", {node.leaves} {'leaf' if node.leaves == 1 else 'leaves'}"
    name = f"{'  ' * level}{node.name or 'state'}{' ...' if folded else ''}"
    rows.append((name, what, size))
    if not folded:
        _children(node.children, level + 1, depth, rows)


def _children(nodes: Sequence[Node], level: int, depth: int | None, rows: list[tuple[str, str, str]]) -> None:
    shown = nodes if depth is None or len(nodes) <= _MANY else nodes[:_FEW]
    for node in shown:
        _rows(node, level, depth, rows)
    rest = nodes[len(shown) :]
    if rest:
        size = sum(node.bytes for node in rest)
        rows.append((f"{'  ' * level}... {len(rest)} more", "", output.bytes_text(size) if size else ""))
