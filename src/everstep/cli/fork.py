"""``everstep fork``: a new run that begins at a checkpoint."""

from __future__ import annotations

import click

from everstep.cli import output, places
from everstep.cli.describe import checkpoint_fields, checkpoint_words
from everstep.cli.options import json_option, run_option, store_option

__all__ = ["command"]


@click.command("fork")
@click.argument("checkpoint", metavar="RUN@STEP")
@click.argument("new_run", metavar="NEW")
@store_option
@run_option
@json_option
def command(checkpoint: str, new_run: str, store: str | None, run: str | None, *, as_json: bool) -> None:
    """Start a new run from a checkpoint, without copying bytes.

    NEW begins with one checkpoint that shares its bytes with RUN@STEP, and keeps them when RUN is pruned.
    """
    from everstep.format.ids import parse_run
    from everstep.repository.fork import fork

    named = parse_run(new_run)
    repository = places.opened(store)
    origin = places.selected(repository, checkpoint, run)
    made = fork(repository, origin, named)
    if as_json:
        output.document({"checkpoint": checkpoint_fields(made), "origin": checkpoint_fields(origin)})
    else:
        output.line(f"{made.run} begins at step {made.step} of {origin.run}")
        output.say(f"no bytes were copied; {checkpoint_words(origin)} may be pruned, {made.run} lives on")
