"""``everstep undelete``: bring back what was pruned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from everstep.cli import asked, output, places
from everstep.cli.describe import checkpoint_fields, checkpoint_words
from everstep.cli.options import json_option, run_option, store_option
from everstep.errors import InvalidName, RunNotFound, UsageError

if TYPE_CHECKING:
    from everstep.format.ids import SaveId
    from everstep.repository.buried import Buried
    from everstep.repository.repository import Repository

__all__ = ["command"]


@click.command("undelete")
@click.argument("checkpoint", metavar="[RUN@STEP]", required=False)
@store_option
@run_option
@click.option("--list", "listed", is_flag=True, help="List what can be brought back, and until when.")
@click.option(
    "--grace",
    metavar="DURATION",
    default="24h",
    show_default=True,
    help="With --list: the grace that the next `everstep prune` is going to have.",
)
@json_option
def command(
    checkpoint: str | None, *, store: str | None, run: str | None, listed: bool, grace: str, as_json: bool
) -> None:
    """Bring back a checkpoint that was pruned, while its bytes are there.

    Bytes are there until a prune whose grace is over has come by: `everstep prune` waits a day, the prune of a
    training does not wait unless it has a grace of its own. A policy may prune it again: tag what is to stay.
    """
    grace_s = asked.seconds("--grace", grace)
    repository = places.opened(store)
    name, _, where = places.selector(checkpoint, run).partition("@")
    if listed:
        if where:
            raise UsageError("--list is for a run", hint=f"everstep undelete {name} --list")
        _list(repository, name, grace_s, as_json=as_json)
        return
    if not where:
        raise UsageError(
            "which checkpoint is to come back?",
            hint=f"write {name}@STEP; what there is shows: everstep undelete {name} --list",
        )
    from everstep.repository.undelete import undelete

    try:
        back = undelete(repository, name, _which(name, where))
    except RunNotFound as error:
        raise places.with_near_runs(repository, error, name) from None
    if as_json:
        output.document({"checkpoint": checkpoint_fields(back)})
        return
    output.line(checkpoint_words(back))
    output.say(f"it is a checkpoint again; to keep it from the next prune: everstep tag NAME {back}")


def _which(run: str, where: str) -> int | SaveId:
    from everstep.format.ids import parse_save

    if where.isascii() and where.isdigit():
        return int(where)
    try:
        return parse_save(where)
    except InvalidName:
        raise UsageError(
            f"{run}@{where} names no checkpoint that was pruned", hint=f"write {run}@STEP", run=run
        ) from None


def _list(repository: Repository, run: str, grace_s: float, *, as_json: bool) -> None:
    from everstep.repository.buried import undeletable

    try:
        found = undeletable(repository, run)
    except RunNotFound as error:
        raise places.with_near_runs(repository, error, run) from None
    if as_json:
        output.document({"run": run, "checkpoints": [_fields(one, grace_s) for one in found]})
        return
    if not found:
        output.say(f"{run} has nothing to undelete")
        return
    output.table(
        ("CHECKPOINT", "ATTEMPT", "CREATED", "SIZE", "PRUNED", "UNTIL AT LEAST", "POLICY"),
        [
            (
                checkpoint_words(one.checkpoint),
                str(one.checkpoint.attempt),
                output.time_text(one.checkpoint.created),
                output.bytes_text(one.checkpoint.bytes),
                output.time_text(one.since),
                output.time_text(one.since + grace_s),
                one.why,
            )
            for one in found
        ],
        right=("ATTEMPT", "SIZE"),
    )


def _fields(one: Buried, grace_s: float) -> dict[str, object]:
    return {
        **checkpoint_fields(one.checkpoint),
        "pruned": one.since,
        "until": one.since + grace_s,
        "why": output.jsonable(one.why),
    }
