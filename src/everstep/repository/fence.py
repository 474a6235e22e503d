"""Attempts and the fence between them: the highest number owns the run."""

from __future__ import annotations

import re
from dataclasses import dataclass

from everstep.errors import CorruptObject, Fenced, ObjectNotFound, RunNotFound
from everstep.format.records import AttemptRecord
from everstep.repository.keys import attempt_key, attempts_prefix
from everstep.repository.objects import listed, read_record
from everstep.repository.repository import Repository

__all__ = ["Attempt", "attempts_after", "check_fence", "find_attempt", "read_attempt"]

_ATTEMPT = re.compile(r"(\d{8})\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One launch of a run: its number fences lower ones. ``id`` tells two claims of one number apart."""

    run: str
    number: int
    id: str
    owner: str
    world: int


def attempts_after(repo: Repository, run: str, number: int) -> list[int]:
    """The numbers of the attempts above ``number``, ascending; one list."""
    prefix = attempts_prefix(run)
    after = attempt_key(run, number) if number > 0 else ""
    names = (
        _ATTEMPT.fullmatch(found.key.removeprefix(prefix)) for found in listed(repo.store, prefix, after)
    )
    return [int(name[1]) for name in names if name]


def check_fence(repo: Repository, attempt: Attempt) -> None:
    """Raise `Fenced`, naming both, if a newer attempt of the run exists."""
    newer = attempts_after(repo, attempt.run, attempt.number)
    if newer:
        raise Fenced(
            f"attempt {attempt.number} of run {attempt.run!r} is fenced: attempt {newer[-1]} owns the run",
            hint="a newer launch of this run has started; stop this one",
            run=attempt.run,
            attempt=attempt.number,
            newer=newer[-1],
        )


def read_attempt(repo: Repository, run: str, number: int) -> AttemptRecord:
    """The record of an attempt. Raises `ObjectNotFound`, or an `IntegrityError` naming its key."""
    key = attempt_key(run, number)
    record = read_record(repo.store, key, AttemptRecord)
    if record.run != run or record.attempt != number:
        raise CorruptObject(f"{key} holds attempt {record.attempt} of run {record.run!r}", key=key)
    return record


def find_attempt(repo: Repository, run: str, number: int) -> Attempt:
    """The attempt that another rank of this launch has claimed. Raises `RunNotFound` when nobody has."""
    try:
        record = read_attempt(repo, run, number)
    except ObjectNotFound:
        raise RunNotFound(
            f"run {run!r} has no attempt {number}",
            hint="rank 0 claims it first; give all ranks the same number",
            run=run,
            attempt=number,
        ) from None
    return Attempt(run=run, number=number, id=record.id, owner=record.owner, world=record.world)
