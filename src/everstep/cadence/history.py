"""What the store knows of a run's attempts: how long each lived, and how it ended."""

from __future__ import annotations

from itertools import islice

from everstep.cadence.cadence import Life
from everstep.errors import IntegrityError, ObjectNotFound
from everstep.format.records import AttemptRecord, Summary
from everstep.repository.decisions import read_decision
from everstep.repository.fence import attempts_after, read_attempt
from everstep.repository.keys import attempt_commits_prefix, save_of_commit
from everstep.repository.objects import listed
from everstep.repository.parallel import gather
from everstep.repository.repository import Repository

__all__ = ["lives"]

_ATTEMPTS = 24
"""The newest attempts are looked at: they tell of the machines of today."""
_LOOKED_AT = 4
"""Commit records of one attempt that are read, the newest first, until one is of a checkpoint."""
_ENDS = {"due": "lost", "asked": "lost", "notice": "noticed", "end": "finished"}


def lives(repo: Repository, run: str, *, current: int) -> tuple[Life, ...]:
    """The newest 24 attempts of a run up to ``current``, which is running; oldest first.

    An attempt lived from its claim to the begin of its last save that was committed; both times are by the clock of
    its rank 0. It was "finished" when that was the save of its last step, "noticed" when the save of a stop, else
    "lost"; lost with 0 seconds when it saved nothing. Left out is what tells nothing: attempts whose last save was
    made by hand (also forks and imports), those with a damaged record, and times that run backwards.

    One list, and for each attempt its record, a list of one page and most times one commit record. Raises the store's
    errors, `StoreUnavailable` and others.
    """
    numbers = [number for number in attempts_after(repo, run, 0) if number <= current][-_ATTEMPTS:]
    found = gather(lambda number: _life(repo, run, number, current=current), numbers)
    return tuple(life for life in found if life is not None)


def _life(repo: Repository, run: str, number: int, *, current: int) -> Life | None:
    try:
        record = read_attempt(repo, run, number)
        if number == current:
            return Life(attempt=number, up_s=max(0.0, repo.clock() - record.created), ended="running")
        last = _last_save(repo, record)
    except (IntegrityError, ObjectNotFound):
        return None
    if last is None:
        return Life(attempt=number, up_s=0.0, ended="lost")
    up_s = last.created - record.created
    if last.reason not in _ENDS or up_s <= 0:
        return None
    return Life(attempt=number, up_s=up_s, ended=_ENDS[last.reason])


def _last_save(repo: Repository, record: AttemptRecord) -> Summary | None:
    """What is said of the attempt's last checkpoint; None when it made none."""
    prefix = attempt_commits_prefix(record.run, record.attempt)
    saves = (save_of_commit(record.run, found.key) for found in listed(repo.store, prefix))
    for save in islice((save for save in saves if save is not None), _LOOKED_AT):
        summary = read_decision(repo, record.run, save).summary
        if summary is not None:  # a save that was given up has none
            return summary
    return None
