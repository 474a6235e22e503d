"""Marks of checkpoints whose bytes were all read and found whole. The newest that has one is never pruned."""

from __future__ import annotations

from everstep.errors import AccessDenied, InvalidName, StoreError, TryAgain
from everstep.format.ids import SaveId, parse_save
from everstep.format.limits import FORMAT_MAJOR
from everstep.format.records import VerifiedRecord
from everstep.format.wire import to_bytes
from everstep.repository.keys import verified_key, verified_prefix
from everstep.repository.objects import create_mark, listed
from everstep.repository.repository import Repository

__all__ = ["mark_verified", "verified"]


def verified(repo: Repository, run: str) -> frozenset[SaveId]:
    """The saves of a run that have a mark, pruned ones too; one list."""
    prefix = verified_prefix(run)
    names = (found.key.removeprefix(prefix) for found in listed(repo.store, prefix))
    return frozenset(save for name in names if (save := _save(name)) is not None)


def mark_verified(repo: Repository, run: str, save: SaveId, *, by: str) -> bool:
    """Say that all bytes of a checkpoint were read and found whole; ``by`` is as in `VerifiedRecord`.

    Best effort: whether the mark is there. Who may only read, or has no room, goes without.
    """
    record = VerifiedRecord(format=FORMAT_MAJOR, run=run, save=str(save), by=by, created=repo.clock())
    try:
        create_mark(repo.store, verified_key(run, save), to_bytes(record))
    except (AccessDenied, TryAgain, StoreError):
        return False
    return True


def _save(name: str) -> SaveId | None:
    try:
        return parse_save(name)
    except InvalidName:
        return None
