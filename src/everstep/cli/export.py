"""``everstep export``: a checkpoint's tensors as files of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from everstep.cli import output, places
from everstep.cli.describe import checkpoint_fields, checkpoint_words
from everstep.cli.options import json_option, quiet_option, run_option, store_option
from everstep.cli.progress import progress

if TYPE_CHECKING:
    from everstep.integrations.exported import Exported

__all__ = ["command"]

_GB = 10**9


@click.command("export")
@click.argument("checkpoint", metavar="[RUN[@STEP]]", required=False)
@store_option
@run_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["safetensors", "torch", "dcp"]),
    default="safetensors",
    show_default=True,
    help="safetensors: tensors only. torch: the whole nesting, loadable with weights_only=True. dcp: a folder "
    "for torch.distributed.checkpoint (DCP).",
)
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="The file, or for dcp the folder, to write."
)
@click.option("--select", "select", metavar="PATTERN", multiple=True, help="Only these leaves (may repeat).")
@click.option("--skip", metavar="PATTERN", multiple=True, help="Not these leaves (may repeat).")
@click.option(
    "--names",
    type=click.Choice(["dot", "slash"]),
    default="dot",
    show_default=True,
    help="How safetensors names join their parts.",
)
@click.option(
    "--shard-gb",
    type=click.FloatRange(min=0, min_open=True),
    default=5.0,
    show_default=True,
    help="Over this many GB safetensors are written in shards with an index.",
)
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
@quiet_option
@json_option
def command(
    checkpoint: str | None,
    *,
    store: str | None,
    run: str | None,
    form: str,
    out: Path,
    select: tuple[str, ...],
    skip: tuple[str, ...],
    names: str,
    shard_gb: float,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Write a checkpoint's tensors to safetensors or torch files, or to a DCP folder.

    With --select model (the path of one part of the state) the names are those inside that part: a model's
    own state dict. PATTERN is a path, all beneath it included, or a shell pattern over whole paths.
    """
    from everstep.events import silent
    from everstep.repository.readers import gone_or_pruned, reading_long
    from everstep.transfer.contents import Contents

    with progress(quiet=quiet) as listener:
        repository = places.opened(store, listener=listener)
        chosen = places.selected(repository, checkpoint, run)
        contents = Contents(repository, chosen, listener=silent if form == "dcp" else listener)
        with reading_long(repository, chosen), gone_or_pruned(repository, chosen):
            if form == "safetensors":
                from everstep.integrations.safetensors_write import export_safetensors

                done = export_safetensors(
                    contents,
                    out,
                    select=select,
                    skip=skip,
                    slashes=names == "slash",
                    shard_bytes=int(shard_gb * _GB),
                    force=force,
                )
            elif form == "dcp":
                from everstep.integrations.distributed import export_distributed

                done = export_distributed(contents, out, select=select, skip=skip)
            else:
                from everstep.integrations.torch_write import export_torch

                done = export_torch(contents, out, select=select, skip=skip, force=force)
    if as_json:
        output.document({"checkpoint": checkpoint_fields(chosen), "format": form, **_fields(done)})
        return
    for path in done.files:
        output.line(output.printable(str(path)))
    output.say(f"{done.tensors} tensors, {output.bytes_text(done.bytes)}, of {checkpoint_words(chosen)}")
    if done.left_out:
        shown = ", ".join(done.left_out[:5]) + (" ..." if len(done.left_out) > 5 else "")
        output.say(
            output.printable(f"left out, as {form} cannot hold them: {len(done.left_out)} leaves ({shown})")
        )


def _fields(done: Exported) -> dict[str, object]:
    return {
        "files": [output.jsonable(str(path)) for path in done.files],
        "tensors": done.tensors,
        "bytes": done.bytes,
        "left_out": [output.jsonable(path) for path in done.left_out],
    }
