"""``everstep import``: a checkpoint from files of other tools."""

from __future__ import annotations

from pathlib import Path

import click

from everstep.cli import output, places
from everstep.cli.describe import checkpoint_fields, checkpoint_words
from everstep.cli.options import json_option, quiet_option, run_option, store_option
from everstep.cli.progress import progress
from everstep.errors import UsageError

__all__ = ["command"]


@click.command("import")
@click.argument("path", type=click.Path(path_type=Path))
@store_option
@run_option
@click.option("--step", type=click.IntRange(min=0), required=True, help="The step of the new checkpoint.")
@click.option(
    "--under",
    metavar="NAME",
    default="model",
    show_default=True,
    help="Where tensors of safetensors files and model folders stand in the state.",
)
@quiet_option
@json_option
def command(
    path: Path,
    *,
    store: str | None,
    run: str | None,
    step: int,
    under: str,
    quiet: bool,
    as_json: bool,
) -> None:
    """Make a checkpoint from safetensors, torch, DCP or Hugging Face files.

    PATH is a .safetensors file, a file of torch.save, a folder with config.json and weights, or a folder that
    torch.distributed.checkpoint (DCP) wrote. Torch files are read with weights_only: a pickle that wants anything
    else is refused unexecuted. A folder's config.json becomes the checkpoint's configuration.

    An import is a launch of the run: a training that runs under the same name is fenced by it.
    """
    from everstep.format.ids import parse_run
    from everstep.integrations.importing import read_foreign, save_foreign

    named = places.run_of(None, run)
    if not named:
        raise UsageError("no run is named", hint="give --run NAME, or set EVERSTEP_RUN")
    name = parse_run(named)
    foreign = read_foreign(path, under=under)
    with progress(quiet=quiet) as listener:
        repository = places.opened(store, create=True, listener=listener)
        made = save_foreign(repository, name, step, foreign, listener=listener)
    if as_json:
        output.document({"checkpoint": checkpoint_fields(made), "tensors": len(foreign.flat.pieces)})
    else:
        output.line(checkpoint_words(made))
        output.say(
            f"{len(foreign.flat.pieces)} tensors, {output.bytes_text(made.bytes)}, imported from {path}"
        )
