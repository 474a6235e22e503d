"""The way of a save. The order of its steps is the proof that nothing committed is ever lost:
plan, fence, bases, packs, index, all ranks there, manifest, commit record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from everstep.errors import (
    DuplicateRank,
    EverstepError,
    Fenced,
    IntegrityError,
    ObjectNotFound,
    SaveAborted,
    SaveFailed,
)
from everstep.format.announcement import Announcement
from everstep.format.digests import Digest, digest_of
from everstep.format.entries import Entry
from everstep.format.ids import SaveId, parse_save
from everstep.format.index import Index, compacted
from everstep.format.limits import FORMAT_MAJOR
from everstep.format.manifest import IndexRef
from everstep.format.outline import Outline, outline
from everstep.format.records import CommitRecord, Parent, PlanRecord, Summary
from everstep.format.replicas import Replicas
from everstep.format.values import encode
from everstep.format.wire import check_index, from_bytes, to_bytes
from everstep.repository.arrivals import name_ranks
from everstep.repository.checkpoint import Checkpoint, checkpoint_of
from everstep.repository.completing import await_ranks, complete
from everstep.repository.decisions import aborted, decide, read_decision
from everstep.repository.fence import Attempt, check_fence
from everstep.repository.keys import index_key, pack_key, plan_key
from everstep.repository.objects import create_same
from everstep.repository.reading import by_path
from everstep.repository.repository import Repository
from everstep.repository.tombs import tombed

__all__ = [
    "Save",
    "abort",
    "announce",
    "begin",
    "check_fence",
    "commit",
    "committed_bytes",
    "join",
    "parse_committed",
    "write_index",
]

_NO_WRITE: Final = "0" * 32
"""In place of a writer's random bits, where a record is no object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """A save under way. ``bases`` are the checkpoints whose chunks it may refer to instead of uploading them.

    ``agreed`` is the digest of rank 0's plan on a rank that joined: with the same one, its index leaves out what
    rank 0's has.
    """

    attempt: Attempt
    id: SaveId
    plan: PlanRecord
    bases: tuple[Checkpoint, ...]
    agreed: Digest | None = None

    @property
    def run(self) -> str:
        """The run it belongs to."""
        return self.plan.run

    @property
    def step(self) -> int:
        """The step it is made at."""
        return self.id.step

    @property
    def world(self) -> int:
        """How many ranks write an index."""
        return self.plan.world

    def pack_key(self, rank: int, n: int) -> str:
        """The key of the ``n``-th pack that a rank writes."""
        return pack_key(self.id, rank, n)


def begin(
    repo: Repository,
    attempt: Attempt,
    step: int,
    *,
    bases: Sequence[Checkpoint] = (),
    forked_from: Parent | None = None,
) -> Save:
    """Write the plan, which pins the bases; look whether a newer attempt exists; look whether the bases stand.

    A base that was pruned, or cannot be read, is dropped: what it had is uploaded in full. Raises `Fenced`.
    """
    save = SaveId(step=step, attempt=attempt.number, nonce=repo.entropy(16))
    plan = PlanRecord(
        format=FORMAT_MAJOR,
        run=attempt.run,
        save=str(save),
        world=attempt.world,
        created=repo.clock(),
        bases=tuple(base.parent for base in bases),
        forked_from=forked_from,
    )
    create_same(repo.store, plan_key(attempt.run, save), to_bytes(plan))
    try:
        check_fence(repo, attempt)
    except Fenced as fenced:
        _abort_if_possible(repo, attempt.run, save, fenced.message)
        raise
    return Save(attempt=attempt, id=save, plan=plan, bases=_standing(repo, bases))


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


def write_index(
    repo: Repository,
    save: Save,
    index: Index,
    *,
    entries: Mapping[str, Entry] | None = None,
    replicas: Sequence[Replicas] = (),
) -> Outline:
    """Say what one rank wrote, all its packs being durable; the rank is done then. Returns the index's outline.

    What rank 0 says too is left out when this rank's plan is rank 0's (`join`). ``entries``, by path, are those
    that an index needs which is compact already. ``replicas`` go into the outline. Raises `SaveFailed` for an
    index that is not this save's, for a rank beyond the world, and for packs of other saves when there is no base.
    """
    if (index.run, index.save, index.world) != (save.run, str(save.id), save.world):
        raise _refused(save, index, f"it is of {index.run} {index.save} in a world of {index.world}")
    if not 0 <= index.rank < save.world:
        raise _refused(save, index, f"the world has {save.world} ranks")
    foreign = [key for key in index.packs if f"/{save.id}/" not in key]
    if foreign and not save.bases:
        raise _refused(save, index, f"it refers to {foreign[0]}, and the save has no base")
    if not index.compact:
        entries = by_path(index.entries)
        if index.rank != 0 and index.plan == save.agreed:
            check_index(index)
            index = compacted(index)
    body = to_bytes(index)
    digest = digest_of(body)
    told = outline(index, digest=digest, size=len(body), entries=entries, replicas=replicas)
    create_same(repo.store, index_key(save.run, save.id, index.rank, digest), body)
    return told


def commit(
    repo: Repository,
    save: Save,
    outlines: Sequence[Outline] | None = None,
    *,
    timeout_s: float,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> Checkpoint:
    """Wait for all ranks, then make the manifest and the commit record. Any rank may do it, also several.

    With every rank's outline, in any order, no index is read: one list shows that the store has the indexes that
    they tell of. Without, all indexes are read. Both ways make the same bytes and refuse the same saves.

    Success means that the record was read or written and says ``committed``. Raises `SaveTimeout` naming
    the missing ranks, `DuplicateRank`, `DisagreeingPlans`, `Fenced` when a newer attempt gave the save
    up, `SaveAborted` when something else did, and the store's error when the outcome cannot be proved.
    """
    try:
        told = None if outlines is None else _ordered(save, outlines)
        refs = await_ranks(repo, save.plan, save.id, timeout_s=timeout_s, sleep=sleep, now=now)
        for one in told or ():
            if refs[one.rank] != one.ref:
                raise _another(save, one, refs[one.rank])
        return complete(repo, save.plan, save.id, refs, told)
    except SaveAborted:
        check_fence(repo, save.attempt)
        raise


def committed_bytes(checkpoint: Checkpoint) -> bytes:
    """A checkpoint as bytes, for the ranks that did not commit it: `parse_committed` makes it again."""
    summary = Summary(
        created=checkpoint.created,
        bytes=checkpoint.bytes,
        stored_bytes=checkpoint.stored_bytes,
        world=checkpoint.world,
        metrics={name: encode(value) for name, value in checkpoint.metrics.items()},
        forked_from=checkpoint.forked_from,
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


def abort(repo: Repository, save: Save, why: str) -> CommitRecord:
    """Give the save up for ever. Returns the record that stands: it may say that it was committed before."""
    return decide(repo, aborted(repo, save.run, save.id, why), save.id)


def _standing(repo: Repository, bases: Sequence[Checkpoint]) -> tuple[Checkpoint, ...]:
    return tuple(base for base in bases if _stands(repo, base))


def _stands(repo: Repository, base: Checkpoint) -> bool:
    try:
        return read_decision(repo, base.run, base.save).state == "committed" and not tombed(
            repo, base.run, base.save
        )
    except (ObjectNotFound, IntegrityError):
        return False


def _abort_if_possible(repo: Repository, run: str, save: SaveId, why: str) -> None:
    """Best effort: an undecided plan keeps its bases from being swept until the next attempt or prune."""
    try:
        decide(repo, aborted(repo, run, save, why), save)
    except EverstepError:
        return


def _ordered(save: Save, outlines: Sequence[Outline]) -> list[Outline]:
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


def _refused(save: Save, index: Index, why: str) -> SaveFailed:
    return SaveFailed(
        f"the index of rank {index.rank} cannot be part of save {save.id} of run {save.run!r}: {why}",
        run=save.run,
        save=str(save.id),
        rank=index.rank,
        world=save.world,
    )
