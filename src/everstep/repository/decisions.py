"""The commit record: the one object whose creation decides a save. The first writer wins."""

from __future__ import annotations

from everstep.errors import AlreadyExists, CorruptObject, ObjectNotFound, StoreUnavailable
from everstep.format.ids import SaveId
from everstep.format.limits import FORMAT_MAJOR
from everstep.format.records import CommitRecord, Summary
from everstep.format.wire import to_bytes
from everstep.repository.keys import commit_key
from everstep.repository.objects import read_record
from everstep.repository.repository import Repository

__all__ = ["aborted", "committed", "decide", "decision", "read_decision"]


def committed(
    repo: Repository, run: str, save: SaveId, *, manifest: str, size: int, summary: Summary
) -> CommitRecord:
    """The record that makes a save a checkpoint, not written yet."""
    return CommitRecord(
        format=FORMAT_MAJOR,
        run=run,
        save=str(save),
        state="committed",
        write=repo.entropy(16),
        decided=repo.clock(),
        manifest=manifest,
        manifest_size=size,
        summary=summary,
    )


def aborted(repo: Repository, run: str, save: SaveId, why: str) -> CommitRecord:
    """The record that gives a save up for ever, not written yet."""
    return CommitRecord(
        format=FORMAT_MAJOR,
        run=run,
        save=str(save),
        state="aborted",
        write=repo.entropy(16),
        decided=repo.clock(),
        why=why,
    )


def decide(repo: Repository, record: CommitRecord, save: SaveId) -> CommitRecord:
    """Create the record, and return the one that stands: this one or the one that was first.

    When the answer is lost or says that the key is taken, the record is read back. Raises the store's
    error when it cannot be proved which record stands.
    """
    try:
        repo.store.create(commit_key(record.run, save), to_bytes(record))
    except (AlreadyExists, StoreUnavailable) as error:
        try:
            return read_decision(repo, record.run, save)
        except ObjectNotFound:
            raise error from None
    return record


def decision(repo: Repository, run: str, save: SaveId) -> CommitRecord | None:
    """The record that stands, or None while the save is undecided."""
    try:
        return read_decision(repo, run, save)
    except ObjectNotFound:
        return None


def read_decision(repo: Repository, run: str, save: SaveId) -> CommitRecord:
    """The record that stands. Raises `ObjectNotFound`, or an `IntegrityError` naming its key."""
    key = commit_key(run, save)
    record = read_record(repo.store, key, CommitRecord)
    if record.run != run or record.save != str(save) or record.state not in {"committed", "aborted"}:
        raise CorruptObject(
            f"{key} holds a record of {record.state!r} for {record.run} {record.save}", key=key
        )
    return record
