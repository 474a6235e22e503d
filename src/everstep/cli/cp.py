"""``everstep cp``: a run or a checkpoint into another store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from everstep.cli import output, places
from everstep.cli.describe import checkpoint_fields
from everstep.cli.options import json_option, quiet_option, run_option, store_option
from everstep.cli.progress import progress
from everstep.errors import NotFound, RunNotFound

if TYPE_CHECKING:
    from everstep.repository.checkpoint import Checkpoint
    from everstep.repository.repository import Repository

__all__ = ["command"]


@click.command("cp")
@click.argument("source", metavar="RUN[@STEP]", required=False)
@store_option
@run_option
@click.option("--to", "target", metavar="URL", required=True, help="The store that gets the copy.")
@click.option("--as", "new_name", metavar="NAME", help="The run's name there.  [default: its own]")
@quiet_option
@json_option
def command(
    source: str | None,
    *,
    store: str | None,
    run: str | None,
    target: str,
    new_name: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Copy a run or a checkpoint to another store, verified.

    RUN copies all its checkpoints, RUN@STEP, RUN@latest or tag:NAME one. Every byte is verified on the way.
    Stopped half-way, the same command goes on: what is there already is not copied again.
    """
    from everstep.format.ids import parse_run
    from everstep.repository.copying import copy

    with progress(quiet=quiet) as listener:
        here = places.opened(store, listener=listener)
        chosen = _chosen(here, source, run)
        name = parse_run(new_name or chosen[0].run)
        there = places.opened(target, create=True, listener=listener)
        copied = copy(here, chosen, there, run=name, listener=listener)
    if as_json:
        output.document({"to": there.store.url, "checkpoints": [checkpoint_fields(one) for one in copied]})
        return
    for one in copied:
        output.line(f"{one.run}@{one.step}")
    many = "1 checkpoint" if len(copied) == 1 else f"{len(copied)} checkpoints"
    output.say(f"{many} of {chosen[0].run} verified and in {there.store.url}")


def _chosen(repository: Repository, text: str | None, run: str | None) -> list[Checkpoint]:
    """One checkpoint, or all of a run, oldest first, so that later ones find their bytes there."""
    from everstep.repository.catalogue import checkpoints

    if text and (text.startswith("tag:") or "@" in text):
        return [places.selected(repository, text, run)]
    name = places.selector(text, run)
    try:
        found = checkpoints(repository, name)
    except RunNotFound as error:
        raise places.with_near_runs(repository, error, name) from None
    if not found:
        raise NotFound(f"run {name!r} has no checkpoint to copy", hint="everstep ls")
    return found[::-1]
