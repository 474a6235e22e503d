"""The way of a save. The order of its steps is the proof that nothing committed is ever lost:
plan, fence, bases, packs, index, all ranks there, manifest, commit record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from everstep.errors import (
    CheckpointPruned,
    EverstepError,
    Fenced,
    IntegrityError,
    ObjectNotFound,
    SaveAborted,
    SaveFailed,
)
from everstep.format.box import Box
from everstep.format.digests import digest_of
from everstep.format.entries import Entry, Tensor
from everstep.format.ids import SaveId
from everstep.format.index import Index, compacted
from everstep.format.layouts import last_rank, parts
from everstep.format.limits import FORMAT_MAJOR
from everstep.format.outline import Outline, outline
from everstep.format.records import CommitRecord, Parent, PlanRecord
from everstep.format.replicas import Replicas
from everstep.format.wire import check_index, to_bytes
from everstep.repository.announcing import (
    announce,
    check_refs,
    committed_bytes,
    join,
    ordered,
    parse_committed,
)
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.completing import await_ranks, complete
from everstep.repository.decisions import aborted, decide, read_decision
from everstep.repository.fence import Attempt, check_fence
from everstep.repository.heirs import inherit
from everstep.repository.keys import index_key, plan_key
from everstep.repository.objects import create_same
from everstep.repository.reading import by_path
from everstep.repository.repository import Repository
from everstep.repository.save import Save
from everstep.repository.tombs import tombed

__all__ = [
    "Save",
    "abort",
    "announce",
    "begin",
    "begin_again",
    "check_fence",
    "commit",
    "committed_bytes",
    "join",
    "parse_committed",
    "write_index",
]


def begin(
    repo: Repository,
    attempt: Attempt,
    step: int,
    *,
    bases: Sequence[Checkpoint] = (),
    forked_from: Parent | None = None,
) -> Save:
    """Write the plan, which pins the bases; look whether a newer attempt exists; look whether the bases stand.

    A run whose checkpoint is a base is told before that this one is its heir (`heirs`). A base that was pruned, or
    cannot be read, is dropped: what it had is uploaded in full. Raises `Fenced`.
    """
    for of in {base.run for base in bases} - {attempt.run}:
        inherit(repo, of=of, heir=attempt.run)
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


def begin_again(repo: Repository, checkpoint: Checkpoint, *, bases: Sequence[Checkpoint] = ()) -> Save:
    """Begin the save that is to take a checkpoint's place: of its step, attempt and time, with it as the first base.

    No newer attempt is looked for. A launch that decides this save is obeyed, and one that comes before it or
    after it finds the same content at the same place in the order, whichever of the two it sees. ``bases`` that do
    not stand are dropped. Raises `CheckpointPruned` when the checkpoint itself does not; then nothing is left.
    """
    save = SaveId(step=checkpoint.step, attempt=checkpoint.attempt, nonce=repo.entropy(16))
    named = (checkpoint, *bases)
    plan = PlanRecord(
        format=FORMAT_MAJOR,
        run=checkpoint.run,
        save=str(save),
        world=checkpoint.world,
        created=checkpoint.created,
        bases=tuple(base.parent for base in named),
        forked_from=checkpoint.forked_from,
        replaces=str(checkpoint.save),
    )
    create_same(repo.store, plan_key(checkpoint.run, save), to_bytes(plan))
    found = _standing(repo, named)
    if checkpoint not in found:
        why = f"{checkpoint} was pruned, or replaced, meanwhile"
        decide(repo, aborted(repo, checkpoint.run, save, why), save)
        raise CheckpointPruned(why, run=checkpoint.run, step=checkpoint.step, save=str(checkpoint.save))
    attempt = Attempt(
        run=checkpoint.run, number=checkpoint.attempt, id="", owner="repack", world=checkpoint.world
    )
    return Save(attempt=attempt, id=save, plan=plan, bases=found)


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
    index that is not this save's, for a rank beyond the world, also one in a layout, for packs of other saves when
    there is no base, and for boxes that the rank does not have by the tensor's layout, where no reader would look.
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
        _check_boxes(save, index, entries)
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
        told = None if outlines is None else ordered(save, outlines)
        refs = await_ranks(repo, save.plan, save.id, timeout_s=timeout_s, sleep=sleep, now=now)
        check_refs(save, told or (), refs)
        return complete(repo, save.plan, save.id, refs, told)
    except SaveAborted:
        check_fence(repo, save.attempt)
        raise


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


def _check_boxes(save: Save, index: Index, entries: Mapping[str, Entry]) -> None:
    """That layouts name ranks of this world, and that the boxes are this rank's by them."""
    for entry in entries.values():
        if isinstance(entry, Tensor) and entry.layout is not None:
            last = last_rank(entry.layout)
            if last >= save.world:
                raise _refused(
                    save,
                    index,
                    f"the layout of {entry.path!r} names rank {last}; there are {save.world} ranks",
                )
    for shard in index.shards:
        tensor = entries.get(shard.path)
        if not isinstance(tensor, Tensor) or tensor.layout is None:
            continue  # `check_index` names a shard of what is no tensor
        box = Box(shard.offsets, shard.sizes)
        if box.elements and all(part.box != box for part in parts(tensor.layout, tensor.shape, index.rank)):
            raise _refused(
                save,
                index,
                f"by its layout the rank has no box {box.offsets} + {box.sizes} of {shard.path!r}",
            )


def _refused(save: Save, index: Index, why: str) -> SaveFailed:
    return SaveFailed(
        f"the index of rank {index.rank} cannot be part of save {save.id} of run {save.run!r}: {why}",
        run=save.run,
        save=str(save.id),
        rank=index.rank,
        world=save.world,
    )
