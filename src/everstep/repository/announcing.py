"""What ranks tell each other of a save, so that one request to the store does for all: its beginning and its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from everstep.errors import DuplicateRank, SaveFailed
from everstep.format.announcement import Announcement
from everstep.format.digests import Digest
from everstep.format.ids import parse_save
from everstep.format.limits import FORMAT_MAJOR
from everstep.format.manifest import IndexRef
from everstep.format.outline import Outline
from everstep.format.records import CommitRecord, Summary
from everstep.format.values import encode
from everstep.format.wire import from_bytes, to_bytes
from everstep.repository.arrivals import name_ranks
from everstep.repository.checkpoint import Checkpoint, checkpoint_of
from everstep.repository.fence import Attempt
from everstep.repository.save import Save

__all__ = ["announce", "check_refs", "committed_bytes", "join", "ordered", "parse_committed"]

_NO_WRITE: Final = "0" * 32
"""In place of a writer's random bits, where a record is no object."""


def announce(save: Save, *, plan_digest: Digest) -> bytes:
    """What rank 0 tells the other ranks of a save that it began, for `join`; ``plan_digest`` is that of its plan."""
    return to_bytes(
        Announcement(
            format=FORMAT_MAJOR,
            plan=save.plan,
            bases=tuple(base.parent for base in save.bases),
            digest=plan_digest,
        )
    )


def join(attempt: Attempt, announced: bytes, *, bases: Sequence[Checkpoint] = ()) -> Save:
    """The save that rank 0 of this attempt has begun, on another rank; of ``bases`` those that it found standing.

    Nothing is asked of the store. Rank 0 looked at the bases after the plan that pins them was there, and
    that holds for every rank, however late: a prune that missed the plan had set its tombs before it listed the
    plans, so before the look, which saw them; a prune that saw the plan keeps the packs of its bases until the
    save is decided. Nor need a rank look for a newer attempt: that one decides the save before it resumes.

    Raises `SaveFailed` for a save that is not of this attempt.
    """
    told = from_bytes(announced, Announcement, what="the announcement of a save")
    parsed = parse_save(told.plan.save)
    if (told.plan.run, parsed.attempt, told.plan.world) != (attempt.run, attempt.number, attempt.world):
        raise SaveFailed(
            f"rank 0 announced save {parsed} of run {told.plan.run!r} with {told.plan.world} ranks to attempt"
            f" {attempt.number} of run {attempt.run!r} with {attempt.world}",
            hint="give all ranks of a launch the same run, attempt and world size",
            run=attempt.run,
            save=told.plan.save,
        )
    standing = frozenset((base.run, base.save) for base in told.bases)
    return Save(
        attempt=attempt,
        id=parsed,
        plan=told.plan,
        bases=tuple(base for base in bases if (base.run, str(base.save)) in standing),
        agreed=Digest(told.digest),
    )


def committed_bytes(checkpoint: Checkpoint) -> bytes:
    """A checkpoint as bytes, for the ranks that did not commit it: `parse_committed` makes it again."""
    summary = Summary(
        created=checkpoint.created,
        bytes=checkpoint.bytes,
        stored_bytes=checkpoint.stored_bytes,
        world=checkpoint.world,
        metrics={name: encode(value) for name, value in checkpoint.metrics.items()},
        forked_from=checkpoint.forked_from,
        reason=checkpoint.reason,
        replaces=checkpoint.replaces,
    )
    return to_bytes(
        CommitRecord(
            format=FORMAT_MAJOR,
            run=checkpoint.run,
            save=str(checkpoint.save),
            state="committed",
            write=_NO_WRITE,
            decided=checkpoint.created,
            manifest=checkpoint.manifest,
            manifest_size=checkpoint.manifest_size,
            summary=summary,
        )
    )


def parse_committed(told: bytes) -> Checkpoint:
    """The checkpoint that `committed_bytes` was given, without its tags. Nothing is asked of the store."""
    record = from_bytes(told, CommitRecord, what="the verdict of a save")
    return checkpoint_of(record, record.run, parse_save(record.save))


def ordered(save: Save, outlines: Sequence[Outline]) -> list[Outline]:
    """Every rank's outline, in the order of ranks."""
    by_rank: dict[int, Outline] = {}
    for one in outlines:
        other = by_rank.setdefault(one.rank, one)
        if (one.run, one.save) != (save.run, str(save.id)) or not 0 <= one.rank < save.world:
            raise _wrong(save, f"the outline of rank {one.rank} is of {one.run} {one.save}")
        if other.digest != one.digest:
            raise DuplicateRank(
                f"rank {one.rank} told of two indexes of save {save.id} of run {save.run!r}:"
                f" {other.digest} and {one.digest}",
                hint="two processes believe to be this rank; check how the launcher numbers them",
                run=save.run,
                save=str(save.id),
                rank=one.rank,
                digests=(other.digest, one.digest),
            )
    if len(by_rank) != save.world:
        missing = name_ranks([rank for rank in range(save.world) if rank not in by_rank])
        raise _wrong(save, f"there is no outline of {missing}")
    return [by_rank[rank] for rank in range(save.world)]


def check_refs(save: Save, outlines: Sequence[Outline], refs: Mapping[int, IndexRef]) -> None:
    """Raise `DuplicateRank` unless the outlines are of the indexes that the store has."""
    for one in outlines:
        if refs[one.rank] != one.ref:
            raise _another(save, one, refs[one.rank])


def _another(save: Save, outline: Outline, found: IndexRef) -> DuplicateRank:
    return DuplicateRank(
        f"rank {outline.rank} told of index {outline.digest} of save {save.id} of run {save.run!r},"
        f" and the store has {found.digest}",
        hint="two processes believe to be this rank; check how the launcher numbers them",
        run=save.run,
        save=str(save.id),
        rank=outline.rank,
        digests=(outline.digest, found.digest),
    )


def _wrong(save: Save, what: str) -> SaveFailed:
    return SaveFailed(
        f"save {save.id} of run {save.run!r} cannot be committed: {what}", run=save.run, save=str(save.id)
    )
