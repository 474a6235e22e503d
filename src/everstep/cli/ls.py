"""``everstep ls``: runs, or the checkpoints of one run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from everstep.cli import output, places
from everstep.cli.describe import checkpoint_fields
from everstep.cli.options import json_option, run_option, store_option
from everstep.errors import RunNotFound

if TYPE_CHECKING:
    from everstep.repository.repository import Repository

__all__ = ["command"]


@click.command("ls")
@click.argument("run_name", metavar="[RUN]", required=False)
@store_option
@run_option
@json_option
def command(run_name: str | None, store: str | None, run: str | None, *, as_json: bool) -> None:
    """List runs, or the checkpoints of one run.

    Without RUN every run stands in a line with its newest checkpoint; with RUN its checkpoints, the
    newest first.
    """
    repository = places.opened(store)
    named = run_name or run
    if named:
        _checkpoints(repository, named, as_json=as_json)
    else:
        _runs(repository, as_json=as_json)


def _checkpoints(repository: Repository, run: str, *, as_json: bool) -> None:
    from everstep.repository.catalogue import checkpoints

    try:
        found = checkpoints(repository, run)
    except RunNotFound as error:
        raise places.with_near_runs(repository, error, run) from None
    if as_json:
        output.document({"run": run, "checkpoints": [checkpoint_fields(one) for one in found]})
        return
    rows = [
        (
            str(one.step),
            str(one.attempt),
            output.time_text(one.created),
            output.bytes_text(one.bytes),
            output.bytes_text(one.stored_bytes),
            output.metrics_text(one.metrics),
            " ".join(one.tags),
        )
        for one in found
    ]
    if rows:
        numbers = ("STEP", "ATTEMPT", "SIZE", "STORED")
        output.table(("STEP", "ATTEMPT", "CREATED", "SIZE", "STORED", "METRICS", "TAGS"), rows, right=numbers)
    else:
        output.say(f"{run} has no checkpoint yet")


def _runs(repository: Repository, *, as_json: bool) -> None:
    from everstep.repository.catalogue import newest, runs

    found = [(record, newest(repository, record.run)) for record in runs(repository)]
    if as_json:
        output.document(
            {
                "runs": [
                    {
                        "run": record.run,
                        "created": record.created,
                        "keep": record.keep,
                        "parent": None
                        if record.parent is None
                        else {"run": record.parent.run, "save": record.parent.save},
                    }
                    for record, _newest in found
                ],
                "checkpoints": [checkpoint_fields(one) for _record, one in found if one is not None],
            }
        )
        return
    rows = [
        (record.run, "-", "", "", "", "")
        if one is None
        else (
            record.run,
            str(one.step),
            str(one.attempt),
            output.time_text(one.created),
            output.bytes_text(one.bytes),
            output.metrics_text(one.metrics),
        )
        for record, one in found
    ]
    if rows:
        headings = ("RUN", "STEP", "ATTEMPT", "CREATED", "SIZE", "METRICS")
        output.table(headings, rows, right=("STEP", "ATTEMPT", "SIZE"))
    else:
        output.say(f"{repository.store.url} has no runs yet")
