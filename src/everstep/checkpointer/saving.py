"""The background half of a save: from staged bytes to a commit record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from everstep.events import Listener
from everstep.format.digests import Digest
from everstep.format.entries import Entry
from everstep.format.index import Index, Meta
from everstep.format.limits import FORMAT_MAJOR
from everstep.repository.attempts import Attempt
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.repository import Repository
from everstep.repository.saves import begin, commit, write_index
from everstep.transfer.finite import not_finite
from everstep.transfer.pacer import Pacer
from everstep.transfer.stage import Staged
from everstep.transfer.upload import upload

__all__ = ["Base", "Work", "known_chunks", "run"]

Known = dict[Digest, tuple[str, int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A committed checkpoint and where each of this rank's chunks lies: what need not be uploaded again."""

    checkpoint: Checkpoint
    known: Known = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """All that one save needs once the training has gone on."""

    repository: Repository
    attempt: Attempt
    step: int
    rank: int
    world: int
    plan: str
    entries: tuple[Entry, ...]
    staged: Staged
    meta: Meta
    base: Base | None
    pacer: Pacer
    workers: int
    listener: Listener
    check_finite: bool
    commit_timeout_s: float


def known_chunks(indexes: Sequence[Index]) -> Known:
    """Where each chunk of some indexes lies: pack key, offset and length in bytes, by digest."""
    return {
        Digest(chunk.digest): (index.packs[chunk.pack], chunk.offset, chunk.length)
        for index in indexes
        for shard in index.shards
        for chunk in shard.chunks
    }


def run(work: Work) -> Base:
    """Plan, packs, index, commit: in the protocol's order. Returns the checkpoint as the next save's base.

    Lets the staging memory go, whatever happens.
    """
    try:
        return _run(work)
    finally:
        work.staged.release()


def _run(work: Work) -> Base:
    bases = (work.base.checkpoint,) if work.base else ()
    save = begin(work.repository, work.attempt, work.step, bases=bases)
    meta = work.meta
    if work.check_finite:
        meta = msgspec.structs.replace(meta, not_finite=not_finite(work.staged))
    pinned = work.base is not None and bool(save.bases)
    uploaded = upload(
        work.staged,
        store=work.repository.store,
        pack_key=lambda number: save.pack_key(work.rank, number),
        known=work.base.known if work.base and pinned else {},
        pacer=work.pacer,
        workers=work.workers,
        listener=work.listener,
    )
    index = Index(
        format=FORMAT_MAJOR,
        run=work.attempt.run,
        save=str(save.id),
        rank=work.rank,
        world=work.world,
        plan=work.plan,
        packs=uploaded.packs,
        entries=work.entries,
        shards=uploaded.shards,
        meta=meta,
        bytes=work.staged.nbytes,
        stored_bytes=uploaded.stored_bytes,
    )
    write_index(work.repository, save, index)
    checkpoint = commit(work.repository, save, timeout_s=work.commit_timeout_s)
    return Base(checkpoint=checkpoint, known=known_chunks([index]))
