"""The background half of a save: from staged bytes to a commit record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Never

import msgspec

from everstep.checkpointer.together import Together
from everstep.errors import RanksMissing, SaveFailed, SaveTimeout, UsageError
from everstep.events import Listener
from everstep.format.digests import Digest
from everstep.format.entries import Entry
from everstep.format.ids import parse_save
from everstep.format.index import Index, Meta
from everstep.format.limits import FORMAT_MAJOR
from everstep.format.outline import Outline
from everstep.format.replicas import Copies, replicas
from everstep.format.wire import from_bytes, to_bytes
from everstep.repository.attempts import Attempt
from everstep.repository.catalogue import committed, current
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.divergence import divergence, divergent
from everstep.repository.reading import read_manifest
from everstep.repository.repository import Repository
from everstep.repository.saves import (
    Save,
    abort,
    announce,
    begin,
    commit,
    committed_bytes,
    join,
    parse_committed,
    write_index,
)
from everstep.transfer.alike import Alike
from everstep.transfer.finite import not_finite
from everstep.transfer.pacer import Pacer
from everstep.transfer.stage import Staged
from everstep.transfer.upload import upload

__all__ = ["Base", "Work", "known_chunks", "run"]

Known = dict[Digest, tuple[str, int, int]]

_DIVERGENT = b"divergent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A committed checkpoint and where each of this rank's chunks lies: what need not be uploaded again."""

    checkpoint: Checkpoint
    known: Known = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """All that one rank's part of a save needs once the training has gone on.

    ``topic`` is what the ranks' words about this save stand under; no other save of the launch has it.
    """

    repository: Repository
    together: Together
    topic: str
    attempt: Attempt
    step: int
    plan: Digest
    entries: tuple[Entry, ...]
    alike: Alike | None
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
    begun: list[Save] = []
    made: list[Index] = []

    def part() -> bytes:
        begun.append(_begun(work))
        made.append(_uploaded(work, begun[0]))
        alike = replicas(work.alike()) if work.alike else ()
        return to_bytes(write_index(work.repository, begun[0], made[0], replicas=alike))

    def decide(words: Mapping[int, bytes]) -> bytes:
        told = [from_bytes(word, Outline, what=f"the outline of rank {rank}") for rank, word in words.items()]
        if len({outline.plan for outline in told}) == 1 and divergent(told):
            # else the next attempt would find every index there, and commit what was refused
            abort(work.repository, begun[0], "ranks that must hold the same bytes hold different ones")
            return _DIVERGENT
        return committed_bytes(commit(work.repository, begun[0], told, timeout_s=work.together.patience_s))

    try:
        said = work.together.decided(work.topic, part, decide)
    except RanksMissing as error:
        if not made:
            raise
        checkpoint = _without(work, begun[0], error)
    else:
        if said == _DIVERGENT:
            _name_divergent(work, begun[0])
        checkpoint = parse_committed(said)
    return Base(checkpoint=checkpoint, known=known_chunks(made))


def _name_divergent(work: Work, save: Save) -> Never:
    """The ranks tell each box's digest, and the error names the leaves and ranks. Nothing is committed."""

    def part() -> bytes:
        alike = work.alike() if work.alike else {}
        held = tuple(copy for copies in alike.values() for copy in copies)
        return to_bytes(Copies(format=FORMAT_MAJOR, rank=work.rank, copies=held))

    def decide(words: Mapping[int, bytes]) -> bytes:
        told = [from_bytes(word, Copies, what=f"the copies of rank {rank}") for rank, word in words.items()]
        raise divergence(save.run, str(save.id), told) or SaveFailed(
            f"the replicas of save {save.id} of run {save.run!r} differed, and do not any more",
            hint="the state changed while it was saved: change it only between saves",
            run=save.run,
            save=str(save.id),
        )

    work.together.decided(f"{work.topic}-copies", part, decide)
    raise AssertionError("the decision raises")


def _begun(work: Work) -> Save:
    """The save, begun by rank 0 and joined by the others. Raises `UsageError` where these save another step."""
    bases = (work.base.checkpoint,) if work.base else ()
    begun: list[Save] = []

    def make() -> bytes:
        begun.append(_on_what_stands(work, begin(work.repository, work.attempt, work.step, bases=bases)))
        return announce(begun[0], plan_digest=work.plan)

    told = work.together.from_first(work.topic, make)
    if begun:
        return begun[0]
    save = join(work.attempt, told, bases=bases)
    if (instead := _in_its_place(work, save)) is not None:
        save = join(work.attempt, told, bases=(instead,))
    if save.id.step != work.step:
        raise UsageError(
            f"this rank saves step {work.step}, and rank 0 saves step {save.id.step}",
            hint="all ranks must call save with the same step, in the same order",
            step=work.step,
        )
    return save


def _on_what_stands(work: Work, save: Save) -> Save:
    """The save itself; another one, on the checkpoint that has the base's place, when that was repacked meanwhile."""
    if work.base is None or save.bases:
        return save
    base = work.base.checkpoint
    instead = current(work.repository, base.run, base.save)
    if instead is None or instead.save == base.save:
        return save
    abort(work.repository, save, f"its base {base} was repacked")
    return begin(work.repository, work.attempt, work.step, bases=(instead,))


def _in_its_place(work: Work, save: Save) -> Checkpoint | None:
    """On a rank that joined: the base that rank 0 names in the place of the one that this rank knows, if it does."""
    if work.base is None or save.bases:
        return None
    base = work.base.checkpoint
    for named in save.plan.bases:
        if named.run == base.run and named.save != str(base.save):
            return committed(work.repository, named.run, parse_save(named.save))
    return None


def _known(work: Work, save: Save) -> Known:
    """Where the chunks lie that need not be stored again. Of a base that was repacked, those that did not move."""
    if work.base is None or not save.bases:
        return {}
    base = save.bases[0]
    if base.save == work.base.checkpoint.save:
        return work.base.known
    packs = frozenset(read_manifest(work.repository, base).packs)
    return {digest: spot for digest, spot in work.base.known.items() if spot[0] in packs}


def _uploaded(work: Work, save: Save) -> Index:
    """This rank's packs, durable, and the index that tells of them."""
    meta = work.meta
    if work.check_finite:
        meta = msgspec.structs.replace(meta, not_finite=not_finite(work.staged))
    uploaded = upload(
        work.staged,
        store=work.repository.store,
        pack_key=lambda number: save.pack_key(work.rank, number),
        known=_known(work, save),
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
