"""``everstep verify``: read everything, list what is damaged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from everstep.cli import output, places
from everstep.cli.options import json_option, quiet_option, run_option, store_option
from everstep.cli.progress import progress
from everstep.errors import Archived, EverstepError, IntegrityError, RunNotFound

if TYPE_CHECKING:
    from everstep.events import Listener
    from everstep.repository.checkpoint import Checkpoint
    from everstep.repository.repository import Repository

__all__ = ["command"]

_FINDINGS, _NOT_READ = 10, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    """One damaged thing, as every output shows it."""

    run: str
    step: int | None
    leaf: str
    what: str
    rank: int | None
    key: str
    offset: int | None
    error: str


@click.command("verify")
@click.argument("checkpoint", metavar="[RUN[@STEP]]", required=False)
@store_option
@run_option
@quiet_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    checkpoint: str | None,
    *,
    store: str | None,
    run: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Read everything and list each damaged leaf.

    Without an argument every checkpoint of every run is read, with RUN those of one run, with RUN@STEP or
    tag:NAME that one. Exits 10 when anything is damaged, 1 when nothing is and some lie in an archive tier.
    """
    with progress(quiet=quiet) as listener:
        repository = places.opened(store, listener=listener)
        findings: list[_Finding] = []
        chosen = _chosen(repository, checkpoint, run, findings)
        verified, archived = _verify_all(repository, chosen, findings, listener)
    checked = sum(one.bytes for one in verified)
    if as_json:
        output.document(
            {
                "checkpoints": [
                    {"run": one.run, "step": one.step, "save": str(one.save)} for one in verified
                ],
                "bytes": checked,
                "damage": [
                    {
                        "run": one.run,
                        "step": one.step,
                        "leaf": output.jsonable(one.leaf),
                        "what": one.what,
                        "rank": one.rank,
                        "key": one.key,
                        "offset": one.offset,
                        "error": output.jsonable(one.error),
                    }
                    for one in findings
                ],
                "archived": [
                    {"run": one.run, "step": one.step, "save": str(one.save), "error": error.message}
                    for one, error in archived
                ],
            }
        )
    elif findings:
        output.table(
            ("CHECKPOINT", "LEAF", "RANK", "KEY", "OFFSET", "ERROR"),
            [
                (
                    one.run if one.step is None else f"{one.run}@{one.step}",
                    one.leaf or f"({one.what})",
                    "" if one.rank is None else str(one.rank),
                    one.key,
                    "" if one.offset is None else str(one.offset),
                    one.error,
                )
                for one in findings
            ],
            right=("RANK", "OFFSET"),
        )
    elif verified or not archived:
        many = "1 checkpoint" if len(verified) == 1 else f"{len(verified)} checkpoints"
        output.line(f"{many}, {output.bytes_text(checked)}: every byte is what was written")
    for _, error in archived:
        output.say(f"not read: {output.printable(error.message)}")
    ctx.exit(_FINDINGS if findings else _NOT_READ if archived else 0)


def _verify_all(
    repository: Repository, chosen: list[Checkpoint], findings: list[_Finding], listener: Listener
) -> tuple[list[Checkpoint], list[tuple[Checkpoint, Archived]]]:
    """Those that were read, and those that lie in an archive tier; one that was asked for alone raises `Archived`."""
    verified: list[Checkpoint] = []
    archived: list[tuple[Checkpoint, Archived]] = []
    for one in chosen:
        try:
            findings.extend(_verified(repository, one, listener))
            verified.append(one)
        except Archived as error:
            if len(chosen) == 1:
                raise
            archived.append((one, error))
    return verified, archived


def _chosen(
    repository: Repository, text: str | None, run: str | None, findings: list[_Finding]
) -> list[Checkpoint]:
    """The checkpoints that the words mean; a damaged commit record is a finding of its own."""
    from everstep.repository.catalogue import checkpoints, runs

    if text and (text.startswith(("@", "tag:")) or "@" in text):
        return [places.selected(repository, text, run)]
    named = text or run
    found: list[Checkpoint] = []
    for name in [named] if named else [record.run for record in runs(repository)]:
        damage: list[IntegrityError] = []
        try:
            found += checkpoints(repository, name, on_damage=damage.append)
            findings += [_finding(name, None, error) for error in damage]
        except RunNotFound as error:
            raise places.with_near_runs(repository, error, name) from None
    return found


def _verified(repository: Repository, checkpoint: Checkpoint, listener: Listener) -> list[_Finding]:
    from everstep.repository.verified import mark_verified
    from everstep.repository.verify import verify

    try:
        damage = verify(repository, checkpoint, listener=listener)
    except IntegrityError as error:
        return [_finding(checkpoint.run, checkpoint.step, error)]
    if not damage:  # the newest that has a mark is never pruned
        mark_verified(repository, checkpoint.run, checkpoint.save, by="verify")
    return [
        _Finding(
            run=checkpoint.run,
            step=checkpoint.step,
            leaf=one.path,
            what=one.what,
            rank=None if one.rank < 0 else one.rank,
            key=one.key,
            offset=one.offset,
            error=one.error,
        )
        for one in damage
    ]


def _finding(run: str, step: int | None, error: EverstepError) -> _Finding:
    """Damage that is no leaf's: a commit record, a manifest, an index."""
    return _Finding(
        run=run,
        step=step,
        leaf="",
        what="record" if step is None else "manifest",
        rank=None,
        key=str(error.fields.get("key", error.fields.get("what", ""))),
        offset=None,
        error=error.message,
    )
