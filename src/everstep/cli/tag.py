"""``everstep tag``: names for checkpoints, which also keep them."""

from __future__ import annotations

import click

from everstep.cli import output, places
from everstep.cli.describe import checkpoint_fields, checkpoint_words
from everstep.cli.options import json_option, run_option, store_option
from everstep.errors import UsageError

__all__ = ["command"]


@click.command("tag")
@click.argument("name", metavar="[NAME]", required=False)
@click.argument("checkpoint", metavar="[RUN@STEP]", required=False)
@store_option
@run_option
@click.option("--delete", is_flag=True, help="Remove the name; the checkpoint stays.")
@click.option("--force", is_flag=True, help="Move a name that another checkpoint has.")
@json_option
def command(
    name: str | None,
    checkpoint: str | None,
    store: str | None,
    run: str | None,
    *,
    delete: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Name a checkpoint and keep it; list or remove names.

    Without NAME all names are listed. A tagged checkpoint is never pruned, and is found as tag:NAME.
    """
    if delete:
        if name is None or checkpoint is not None or force:
            raise UsageError("--delete takes one name", hint="everstep tag NAME --delete")
        _delete(name, store, as_json=as_json)
    elif name is None:
        _list(store, as_json=as_json)
    else:
        _set(name, checkpoint, store, run, force=force, as_json=as_json)


def _set(
    name: str, checkpoint: str | None, store: str | None, run: str | None, *, force: bool, as_json: bool
) -> None:
    from everstep.format.ids import parse_tag
    from everstep.repository.tags import set_tag

    tag = parse_tag(name)
    repository = places.opened(store)
    target = places.selected(repository, checkpoint, run)
    set_tag(repository, tag, target, force=force)
    if as_json:
        output.document({"tag": name, "checkpoint": checkpoint_fields(target)})
    else:
        output.line(f"{name} is {checkpoint_words(target)}")


def _delete(name: str, store: str | None, *, as_json: bool) -> None:
    from everstep.format.ids import parse_tag
    from everstep.repository.tags import remove_tag

    remove_tag(places.opened(store), parse_tag(name))
    if as_json:
        output.document({"removed": name})
    else:
        output.line(f"{name} is removed")


def _list(store: str | None, *, as_json: bool) -> None:
    from everstep.format.ids import parse_save
    from everstep.repository.tags import tags

    records = tags(places.opened(store))
    steps = {record.tag: parse_save(record.save).step for record in records}
    if as_json:
        output.document(
            {
                "tags": [
                    {
                        "tag": record.tag,
                        "run": record.run,
                        "step": steps[record.tag],
                        "save": record.save,
                        "created": record.created,
                    }
                    for record in records
                ]
            }
        )
    elif records:
        rows = [
            (record.tag, record.run, str(steps[record.tag]), output.time_text(record.created))
            for record in records
        ]
        output.table(("TAG", "RUN", "STEP", "CREATED"), rows, right=("STEP",))
    else:
        output.say("there are no tags")
