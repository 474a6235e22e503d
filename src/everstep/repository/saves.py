"""The way of a save. The order of its steps is the proof that nothing committed is ever lost:
plan, fence, bases, packs, index, all ranks there, manifest, commit record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from everstep.errors import EverstepError, Fenced, IntegrityError, ObjectNotFound, SaveAborted, SaveFailed
from everstep.format.digests import Digest, digest_of
from everstep.format.ids import SaveId, parse_save
from everstep.format.index import Index
from everstep.format.limits import FORMAT_MAJOR
from everstep.format.records import CommitRecord, Parent, PlanRecord
from everstep.format.wire import to_bytes
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.completing import await_ranks, complete
from everstep.repository.decisions import aborted, decide, read_decision
from everstep.repository.fence import Attempt, check_fence
from everstep.repository.keys import index_key, pack_key, plan_key
from everstep.repository.objects import create_same
from everstep.repository.plans import read_plan
from everstep.repository.repository import Repository
from everstep.repository.tombs import tombed

__all__ = ["Save", "abort", "begin", "check_fence", "commit", "join", "write_index"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """A save under way. ``bases`` are the checkpoints whose chunks it may refer to instead of uploading them."""

    attempt: Attempt
    id: SaveId
    plan: PlanRecord
    bases: tuple[Checkpoint, ...]

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


def join(repo: Repository, attempt: Attempt, save: str, *, bases: Sequence[Checkpoint] = ()) -> Save:
    """The save that another rank of this attempt has begun; of ``bases`` those that its plan pins and that stand.

    Every rank looks for itself, after the plan was written: so each is safe beside a prune.
    """
    parsed = parse_save(save)
    plan = read_plan(repo, attempt.run, parsed)
    pinned = [base for base in bases if base.parent in plan.bases]
    return Save(attempt=attempt, id=parsed, plan=plan, bases=_standing(repo, pinned))


def write_index(repo: Repository, save: Save, index: Index) -> Digest:
    """Say what one rank wrote, all its packs being durable; the rank is done then. Returns the digest.

    Raises `SaveFailed` for an index that is not this save's, for a rank beyond the world, and for packs
    of other saves when there is no base.
    """
    if (index.run, index.save, index.world) != (save.run, str(save.id), save.world):
        raise _refused(save, index, f"it is of {index.run} {index.save} in a world of {index.world}")
    if not 0 <= index.rank < save.world:
        raise _refused(save, index, f"the world has {save.world} ranks")
    foreign = [key for key in index.packs if f"/{save.id}/" not in key]
    if foreign and not save.bases:
        raise _refused(save, index, f"it refers to {foreign[0]}, and the save has no base")
    body = to_bytes(index)
    digest = digest_of(body)
    create_same(repo.store, index_key(save.run, save.id, index.rank, digest), body)
    return digest


def commit(
    repo: Repository,
    save: Save,
    *,
    timeout_s: float,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> Checkpoint:
    """Wait for all ranks, then make the manifest and the commit record. Any rank may do it, also several.

    Success means that the record was read or written and says ``committed``. Raises `SaveTimeout` naming
    the missing ranks, `DuplicateRank`, `DisagreeingPlans`, `Fenced` when a newer attempt gave the save
    up, `SaveAborted` when something else did, and the store's error when the outcome cannot be proved.
    """
    try:
        refs = await_ranks(repo, save.plan, save.id, timeout_s=timeout_s, sleep=sleep, now=now)
        return complete(repo, save.plan, save.id, refs)
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


def _refused(save: Save, index: Index, why: str) -> SaveFailed:
    return SaveFailed(
        f"the index of rank {index.rank} cannot be part of save {save.id} of run {save.run!r}: {why}",
        run=save.run,
        save=str(save.id),
        rank=index.rank,
        world=save.world,
    )
