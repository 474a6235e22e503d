"""One rank's part of a save, and how the coordinator makes a checkpoint of all parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch.distributed.checkpoint.planner import SavePlan, SavePlanner

from everstep.errors import SaveFailed
from everstep.events import Listener
from everstep.format.digests import Digest, digest_of
from everstep.format.entries import Entry
from everstep.format.ids import SaveId
from everstep.format.index import Index, Meta
from everstep.format.limits import FORMAT_MAJOR
from everstep.format.own import own_entries
from everstep.integrations.dcp.apart import united
from everstep.integrations.dcp.handing import Begun, Told
from everstep.integrations.dcp.items import Items, read_items
from everstep.integrations.dcp.session import Known, Session
from everstep.integrations.dcp.tree import grow
from everstep.integrations.dcp.uploading import known_chunks, upload_pieces
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.decisions import decision
from everstep.repository.fence import attempts_after, find_attempt
from everstep.repository.keys import plans_prefix, save_of_plan
from everstep.repository.objects import listed
from everstep.repository.plans import read_plan
from everstep.repository.saves import Save, commit, join, write_index
from everstep.state.describe import encode_config, encode_metrics
from everstep.transfer.upload import Uploaded

__all__ = ["Part", "commit_parts", "join_save", "plan_digest", "write_part"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a rank stored: told to the coordinator, and kept for its own index and for the next save."""

    save: Save
    rank: int
    items: Items
    uploaded: Uploaded = field(repr=False)
    told: Told

    @property
    def known(self) -> Known:
        """Where this rank's chunks lie."""
        return known_chunks(self.uploaded)


def plan_digest(save: SaveId) -> Digest:
    """The digest of the plan, equal on all ranks: there is one plan, the coordinator's, and it is this save's."""
    return digest_of(f"dcp/{save}".encode())


def join_save(session: Session, begun: Begun, *, step: int, cached: bool) -> Save:
    """The save that the coordinator began.

    Planners that cache plans (``enable_plan_caching``) hand over what they had the first time: then the save is
    looked up in the store, where the coordinator has written its plan before any rank comes here.
    """
    if begun.rank == 0 and session.open is not None:
        return session.open
    if not cached:
        save = join(begun.attempt, begun.announced, bases=begun.bases)
        if str(save.id) != session.written:
            return save
    repository, run = session.repository, begun.attempt.run
    newest = attempts_after(repository, run, begun.attempt.number - 1)[-1]
    attempt = find_attempt(repository, run, newest)
    for found in listed(repository.store, plans_prefix(run)):
        other = save_of_plan(run, found.key)
        if other is None or (other.attempt, other.step) != (newest, step):
            continue
        if decision(repository, run, other) is None:
            return Save(
                attempt=attempt,
                id=other,
                plan=read_plan(repository, run, other),
                bases=(),
                agreed=plan_digest(other),
            )
    raise SaveFailed(
        f"the coordinator's save of step {step} is not to be found", run=run, step=step, rank=begun.rank
    )


def write_part(
    session: Session,
    save: Save,
    begun: Begun,
    plan: SavePlan,
    planner: SavePlanner,
    *,
    workers: int,
    listener: Listener,
) -> Part:
    """Store the packs, and but for the coordinator the index, which needs the leaves of all."""
    items = read_items(plan, planner, ranks=begun.ranks, own=begun.rank, apart=begun.apart)
    uploaded = upload_pieces(
        items.pieces,
        items.tensors,
        store=session.repository.store,
        save=save,
        rank=begun.rank,
        known=session.known_for(save),
        arena=session.arena,
        workers=workers,
        listener=listener,
    )
    session.written = str(save.id)
    outline = None
    if begun.rank != 0:
        own = own_entries(grow(items.leaves)) if begun.apart else ()
        index = _index(save, begun.rank, items, uploaded, entries=own, meta=Meta())
        outline = write_index(session.repository, save, index, entries=items.tensors)
        session.remember(save, known_chunks(uploaded))
    told = Told(leaves=items.leaves, outline=outline)
    return Part(save=save, rank=begun.rank, items=items, uploaded=uploaded, told=told)


def commit_parts(
    session: Session,
    part: Part,
    told: Sequence[Told],
    *,
    order: Sequence[str] | None,
    metrics: Mapping[str, object],
    config: object,
    timeout_s: float,
) -> Checkpoint:
    """The coordinator's index with the leaves of all ranks, then manifest and commit record.

    ``order`` are the names in the state's order; None when the planner did not flatten the state. Raises what
    `commit` raises, and `DisagreeingPlans` when ranks give one name two meanings.
    """
    entries = grow(united(told), order=order or (), flat=order is None)
    meta = Meta(metrics=encode_metrics(metrics), config=encode_config(config))
    index = _index(part.save, part.rank, part.items, part.uploaded, entries=entries, meta=meta)
    own = write_index(session.repository, part.save, index)
    outlines = [own, *(one.outline for one in told if one.outline is not None)]
    return commit(session.repository, part.save, outlines, timeout_s=timeout_s)


def _index(
    save: Save, rank: int, items: Items, uploaded: Uploaded, *, entries: tuple[Entry, ...], meta: Meta
) -> Index:
    return Index(
        format=FORMAT_MAJOR,
        run=save.run,
        save=str(save.id),
        rank=rank,
        world=save.world,
        plan=plan_digest(save.id),
        packs=uploaded.packs,
        entries=entries,
        shards=uploaded.shards,
        meta=meta,
        bytes=sum(piece.nbytes for piece in items.pieces),
        stored_bytes=uploaded.stored_bytes,
        compact=rank != 0,
    )
