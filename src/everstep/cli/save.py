"""``everstep save``: asks the training that runs now for a save."""

from __future__ import annotations

import os
import pwd
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from everstep.cli import output, places
from everstep.cli.describe import checkpoint_fields, checkpoint_words
from everstep.cli.options import json_option, run_option, store_option
from everstep.errors import AlreadyExists, CheckpointNotFound, EverstepError, RunNotFound, UsageError

if TYPE_CHECKING:
    from everstep.repository.checkpoint import Checkpoint
    from everstep.repository.repository import Repository

__all__ = ["command"]


@click.command("save")
@click.argument("run_name", metavar="[RUN]", required=False)
@store_option
@run_option
@click.option(
    "--timeout",
    metavar="DURATION",
    default="10m",
    show_default=True,
    help="How long to wait until it is a checkpoint.",
)
@click.option("--no-wait", is_flag=True, help="Ask, and do not wait.")
@click.option("--tag", metavar="NAME", help="Name the checkpoint, which also keeps it.")
@json_option
def command(
    run_name: str | None,
    store: str | None,
    run: str | None,
    timeout: str,
    *,
    no_wait: bool,
    tag: str | None,
    as_json: bool,
) -> None:
    """Ask a training that runs for a save, and wait until it is a checkpoint.

    The training hears of it through the store, so it may run anywhere; it saves at the end of a step. Exits 5 when
    no training seems to run, or none has answered in time; the request is taken back then.
    """
    from everstep.repository.requests import ask, tidy
    from everstep.spot.asking import standing, wait_for_save

    named = places.run_of(run_name, run)
    if not named:
        raise UsageError("no run is named", hint="write RUN, give --run, or set EVERSTEP_RUN")
    timeout_s = _seconds(timeout)
    if tag is not None and no_wait:
        raise UsageError(
            "--tag needs the checkpoint, and --no-wait does not wait for it", hint="leave one out"
        )
    repository = places.opened(store)
    _known(repository, named)
    if tag is not None:
        _free(repository, tag)
    asked = standing(repository, named)
    if no_wait:
        with suppress(EverstepError):  # only tidies: who may not delete asks all the same
            tidy(repository, named)
    began = time.monotonic()
    request = ask(repository, named, owner=_me())
    if no_wait:
        if as_json:
            output.document({"run": named, "request": request, "attempt": asked.attempt.attempt})
        else:
            output.line(output.printable(f"asked {asked} for a save of {named}"))
        return
    stopped = ", which was told to stop: the next launch is asked too" if asked.ended == "notice" else ""
    output.say(output.printable(f"asked {asked} for a save{stopped}; waiting for at most {timeout}"))
    made = wait_for_save(
        repository,
        named,
        request,
        asked,
        timeout_s=timeout_s,
        told=lambda words: output.say(output.printable(words)),
    )
    _show(repository, made, tag, waited_s=time.monotonic() - began, as_json=as_json)
    if tag is None and asked.attempt.keep:
        words = f"the run keeps {asked.attempt.keep}; to keep this one: everstep tag NAME {checkpoint_words(made)}"
        output.say(output.printable(words))


def _show(
    repository: Repository, made: Checkpoint, tag: str | None, *, waited_s: float, as_json: bool
) -> None:
    from everstep.repository.tags import set_tag

    if tag is not None:
        set_tag(repository, tag, made)
    fields = checkpoint_fields(made)
    if tag is not None:
        fields["tags"] = [tag]
    if as_json:
        output.document({"checkpoint": fields, "waited_s": waited_s})
        return
    output.line(click.style(output.printable(checkpoint_words(made)), bold=True))
    output.line(f"created     {output.time_text(made.created)} by attempt {made.attempt}")
    stored = f"{output.bytes_text(made.stored_bytes)} of them stored by this save"
    output.line(f"state       {output.bytes_text(made.bytes)}, {stored}")
    if tag is not None:
        output.line(f"tags        {tag}")


def _seconds(text: str) -> float:
    from everstep.units import parse_seconds

    try:
        seconds = parse_seconds(text)
    except ValueError as error:
        raise UsageError(f"--timeout {text!r} is no duration", hint=f"it takes {error}") from None
    if seconds <= 0:
        raise UsageError(f"--timeout {text!r} is no time at all", hint="--no-wait asks and does not wait")
    return seconds


def _known(repository: Repository, run: str) -> None:
    """Raises `RunNotFound` with the names that may have been meant."""
    from everstep.repository.runs import find_run

    try:
        find_run(repository, run)
    except RunNotFound as error:
        raise places.with_near_runs(repository, error, run) from None


def _free(repository: Repository, tag: str) -> None:
    """Before a training is disturbed: that the name can be given. Raises `InvalidName`, `AlreadyExists`."""
    from everstep.repository.tags import find_tag

    try:
        found = find_tag(repository, tag)
    except CheckpointNotFound:
        return
    raise AlreadyExists(
        f"the tag {tag!r} names {found.run} {found.save}",
        hint=f"choose another name, or remove it with: everstep tag {tag} --delete",
        tag=tag,
        run=found.run,
        save=found.save,
    )


def _me() -> str:
    """Who asks: user@host, for people."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
