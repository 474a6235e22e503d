"""The runs of a store."""

from __future__ import annotations

from everstep.errors import AlreadyExists, CorruptObject, InvalidName, ObjectNotFound, RunNotFound
from everstep.format.ids import parse_run
from everstep.format.limits import FORMAT_MAJOR
from everstep.format.records import Parent, RunRecord
from everstep.format.wire import to_bytes
from everstep.repository.keys import CATALOGUE, run_key
from everstep.repository.objects import create_same, listed, read_record
from everstep.repository.parallel import gather
from everstep.repository.repository import Repository
from everstep.repository.version import written_by

__all__ = ["ensure_run", "find_run", "runs"]


def runs(repo: Repository) -> list[RunRecord]:
    """All runs of the store, by name."""
    keys = [found.key for found in listed(repo.store, CATALOGUE) if found.key.endswith(".json")]
    return sorted(gather(lambda key: _read(repo, key), keys), key=lambda record: record.run)


def find_run(repo: Repository, run: str) -> RunRecord:
    """The run's record. Raises `RunNotFound`, also for another spelling in capital and small letters."""
    try:
        record = _read(repo, run_key(parse_run(run)))
    except ObjectNotFound:
        raise RunNotFound(
            f"{repo.store.url} has no run {run!r}",
            hint="list the runs with: everstep ls",
            run=run,
            store=repo.store.url,
        ) from None
    if record.run != run:
        raise RunNotFound(
            f"{repo.store.url} has no run {run!r}", hint=f"there is one named {record.run!r}", run=run
        )
    return record


def ensure_run(repo: Repository, run: str, *, keep: str = "", parent: Parent | None = None) -> RunRecord:
    """The run's record, made now if the run is new; ``keep`` and ``parent`` only go into a new one.

    Raises `InvalidName` for a name that cannot be one, and for one that differs from an existing run's by
    case alone: on many file systems the two would be one.
    """
    key = run_key(parse_run(run))
    record = RunRecord(
        format=FORMAT_MAJOR, run=run, created=repo.clock(), version=written_by(), parent=parent, keep=keep
    )
    try:
        return _same_case(_read(repo, key), run)
    except ObjectNotFound:
        pass
    try:
        create_same(repo.store, key, to_bytes(record))
    except AlreadyExists:
        return _same_case(_read(repo, key), run)  # another process was faster
    return record


def _read(repo: Repository, key: str) -> RunRecord:
    record = read_record(repo.store, key, RunRecord)
    if run_key(record.run) != key:
        raise CorruptObject(f"{key} holds the record of the run {record.run!r}", key=key)
    return record


def _same_case(record: RunRecord, run: str) -> RunRecord:
    if record.run == run:
        return record
    raise InvalidName(
        f"a run named {record.run!r} exists, and {run!r} differs from it by case alone",
        hint=f"use {record.run!r} to go on with it, or another name",
        run=run,
        existing=record.run,
    )
