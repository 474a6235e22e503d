"""The background half of a save: from staged bytes to a commit record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from everstep.checkpointer.together import Together
from everstep.errors import RanksMissing, SaveTimeout
from everstep.events import Listener
from everstep.format.digests import Digest
from everstep.format.entries import Entry
from everstep.format.index import Index, Meta
from everstep.format.limits import FORMAT_MAJOR
from everstep.format.outline import Outline
from everstep.format.replicas import Replicas
from everstep.format.wire import from_bytes, to_bytes
from everstep.repository.attempts import Attempt
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.repository import Repository
from everstep.repository.saves import (
    Save,
    announce,
    begin,
    commit,
    committed_bytes,
    join,
    parse_committed,
    write_index,
)
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
    """All that one rank's part of a save needs once the training has gone on."""

    repository: Repository
    together: Together
    attempt: Attempt
    step: int
    plan: Digest
    entries: tuple[Entry, ...]
    replicas: tuple[Replicas, ...]
    staged: Staged
    meta: Meta
    base: Base | None
    pacer: Pacer
    workers: int
    listener: Listener
    check_finite: bool

    @property
    def rank(self) -> int:
        """This rank's number."""
        return self.together.ranks.rank

    @property
    def topic(self) -> str:
        """What the ranks' words about this save stand under."""
        return f"save/{self.attempt.number}-{self.step}"


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
    save = _begun(work)
    made: list[Index] = []

    def part() -> bytes:
        index = _uploaded(work, save)
        outline = write_index(work.repository, save, index, replicas=work.replicas)
        made.append(index)
        return to_bytes(outline)

    def decide(words: Mapping[int, bytes]) -> bytes:
        told = [from_bytes(word, Outline, what=f"the outline of rank {rank}") for rank, word in words.items()]
        return committed_bytes(commit(work.repository, save, told, timeout_s=work.together.patience_s))

    try:
        checkpoint = parse_committed(work.together.decided(work.topic, part, decide))
    except RanksMissing as error:
        checkpoint = _without(work, save, error)
    return Base(checkpoint=checkpoint, known=known_chunks(made))


def _begun(work: Work) -> Save:
    """The save, begun by rank 0 and joined by the others."""
    bases = (work.base.checkpoint,) if work.base else ()
    begun: list[Save] = []

    def make() -> bytes:
        begun.append(begin(work.repository, work.attempt, work.step, bases=bases))
        return announce(begun[0], plan_digest=work.plan)

    told = work.together.from_first(work.topic, make)
    return begun[0] if begun else join(work.attempt, told, bases=bases)


def _uploaded(work: Work, save: Save) -> Index:
    """This rank's packs, durable, and the index that tells of them."""
    meta = work.meta
    if work.check_finite:
        meta = msgspec.structs.replace(meta, not_finite=not_finite(work.staged))
    uploaded = upload(
        work.staged,
        store=work.repository.store,
        pack_key=lambda number: save.pack_key(work.rank, number),
        known=work.base.known if work.base and save.bases else {},
        pacer=work.pacer,
        workers=work.workers,
        listener=work.listener,
    )
    return Index(
        format=FORMAT_MAJOR,
        run=work.attempt.run,
        save=str(save.id),
        rank=work.rank,
        world=save.world,
        plan=work.plan,
        packs=uploaded.packs,
        entries=work.entries,
        shards=uploaded.shards,
        meta=meta,
        bytes=work.staged.nbytes,
        stored_bytes=uploaded.stored_bytes,
    )


def _without(work: Work, save: Save, error: RanksMissing) -> Checkpoint:
    """When rank 0 is gone, any other may commit what all have written. Raises `SaveTimeout` naming the missing."""
    absent = error.fields.get("missing", ())
    if work.rank != 0 and absent == (0,):
        return commit(work.repository, save, timeout_s=0)
    raise SaveTimeout(
        f"save {save.id} of run {save.run!r} is not committed: {error.message}",
        hint="look at the logs of these ranks; the checkpoints before this save stand",
        run=save.run,
        save=str(save.id),
        missing=absent,
    ) from error
