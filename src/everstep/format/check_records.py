"""The bounds of the small records."""

from __future__ import annotations

from typing import Final

from everstep.errors import InvalidName, UnsupportedFormat
from everstep.format.digests import ALGORITHM
from everstep.format.faults import Faults
from everstep.format.ids import parse_tag
from everstep.format.limits import MAX_MANIFEST_BYTES, MAX_RANKS
from everstep.format.records import (
    AnswerRecord,
    AttemptRecord,
    CommitRecord,
    HeirRecord,
    Parent,
    PlanRecord,
    ReaderRecord,
    RequestRecord,
    RunRecord,
    StoreRecord,
    Summary,
    SweepRecord,
    TagRecord,
    TombRecord,
    VerifiedRecord,
)

__all__ = ["Record", "check_parent", "check_record"]

OfSave = (
    PlanRecord
    | CommitRecord
    | TagRecord
    | TombRecord
    | SweepRecord
    | ReaderRecord
    | VerifiedRecord
    | AnswerRecord
)
Record = StoreRecord | RunRecord | AttemptRecord | HeirRecord | RequestRecord | OfSave
_MOST_ATTEMPTS: Final = 10**8 - 1
_MOST_BYTES: Final = 2**63 - 1


def check_record(record: Record, what: str = "record") -> None:
    """Every field within its bounds. Raises `InvalidManifest` naming the field."""
    faults = Faults(what)
    if not isinstance(record, StoreRecord):
        faults.run("run", record.run)
    if not isinstance(record, StoreRecord | CommitRecord | AnswerRecord):
        faults.time("created", record.created)
    match record:
        case StoreRecord():
            _check_store(record, faults)
        case RunRecord():
            check_parent("parent", record.parent, faults)
        case AttemptRecord():
            faults.count("attempt", record.attempt, _MOST_ATTEMPTS)
            faults.count("world", record.world, MAX_RANKS, 1)
            if record.resumed_from:
                faults.save("resumed_from", record.resumed_from)
        case HeirRecord():
            faults.run("heir", record.heir)
        case RequestRecord():
            pass
        case _:
            _check_of_save(record, faults)


def _check_of_save(record: OfSave, faults: Faults) -> None:
    faults.save("save", record.save)
    match record:
        case PlanRecord():
            faults.count("world", record.world, MAX_RANKS, 1)
            for n, base in enumerate(record.bases):
                check_parent(f"bases[{n}]", base, faults)
            check_parent("forked_from", record.forked_from, faults)
            if record.replaces:
                faults.save("replaces", record.replaces)
        case CommitRecord():
            _check_commit(record, faults)
        case TagRecord():
            _check_tag(record, faults)
        case TombRecord() if record.replaced_by:
            faults.save("replaced_by", record.replaced_by)
        case _:
            pass


def check_parent(field: str, parent: Parent | None, faults: Faults) -> None:
    """A reference to a checkpoint, where there is one."""
    if parent is not None:
        faults.run(f"{field}.run", parent.run)
        faults.save(f"{field}.save", parent.save)


def _check_store(record: StoreRecord, faults: Faults) -> None:
    if not record.id:
        raise faults.fail("id", "empty")
    if record.digest != ALGORITHM:
        raise UnsupportedFormat(
            f"the store's digests are {record.digest!r:.40}; this version knows {ALGORITHM}",
            hint="upgrade everstep",
            digest=record.digest,
        )
    faults.time("created", record.created)


def _check_commit(record: CommitRecord, faults: Faults) -> None:
    faults.time("decided", record.decided)
    if not record.write:
        raise faults.fail("write", "empty")
    if record.state == "committed":
        faults.digest("manifest", record.manifest)
        faults.count("manifest_size", record.manifest_size, MAX_MANIFEST_BYTES, 1)
        if record.summary is None:
            raise faults.fail("summary", "missing from a committed save")
        _check_summary(record.summary, faults)
    elif record.state == "aborted":
        if record.manifest or record.manifest_size or record.summary is not None:
            raise faults.fail("manifest", "an aborted save has none")
    else:
        raise faults.fail("state", f"{record.state!r:.40} is neither committed nor aborted")


def _check_summary(summary: Summary, faults: Faults) -> None:
    faults.time("summary.created", summary.created)
    faults.count("summary.bytes", summary.bytes, _MOST_BYTES)
    faults.count("summary.stored_bytes", summary.stored_bytes, _MOST_BYTES)
    faults.count("summary.world", summary.world, MAX_RANKS, 1)
    check_parent("summary.forked_from", summary.forked_from, faults)
    if summary.replaces:
        faults.save("summary.replaces", summary.replaces)


def _check_tag(record: TagRecord, faults: Faults) -> None:
    try:
        parse_tag(record.tag)
    except InvalidName as error:
        raise faults.fail("tag", error.message) from error
