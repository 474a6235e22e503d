"""From the last index to the commit record. Any rank may do it, and a newer attempt: all make the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from everstep.errors import SaveAborted, SaveFailed, SaveTimeout
from everstep.format.check_index import check_shards
from everstep.format.digests import digest_of
from everstep.format.ids import SaveId
from everstep.format.index import Index
from everstep.format.manifest import IndexRef, Manifest
from everstep.format.outline import Outline, outline
from everstep.format.records import CommitRecord, PlanRecord, Summary
from everstep.format.wire import to_bytes
from everstep.repository.agreement import check_agreement, check_layouts
from everstep.repository.arrivals import arrivals, missing_ranks
from everstep.repository.checkpoint import Checkpoint, checkpoint_of
from everstep.repository.covering import Counts, adds_up, check_boxes, check_claims
from everstep.repository.decisions import committed, decide, decision
from everstep.repository.keys import index_key, manifest_key
from everstep.repository.manifests import make_manifest
from everstep.repository.objects import create_same
from everstep.repository.parallel import gather
from everstep.repository.reading import by_path, load_index
from everstep.repository.repository import Repository

__all__ = ["await_ranks", "complete", "outcome", "read_outlines"]

_SHORTEST_WAIT_S = 0.02
_LONGEST_WAIT_S = 2.0


def complete(
    repo: Repository,
    plan: PlanRecord,
    save: SaveId,
    refs: Mapping[int, IndexRef],
    outlines: Sequence[Outline] | None = None,
) -> Checkpoint:
    """Make the manifest from the plan and all ranks' outlines, then the commit record.

    Without ``outlines`` all indexes are read; ``outlines`` come in the order of ranks and are of the indexes
    ``refs``. Raises `DisagreeingPlans` when the ranks do not describe one state or did not write each of its
    elements, `SaveAborted` when the save was given up first, an `IntegrityError` when an index is damaged, and
    the store's error when it cannot be proved that the record stands.
    """
    if outlines is None:
        outlines = read_outlines(repo, plan, save, [refs[rank] for rank in sorted(refs)])
    check_agreement(plan, outlines)
    manifest = make_manifest(plan, outlines)
    check_layouts(manifest)
    check_claims(plan, manifest.entries, outlines)
    if not adds_up(manifest.entries, outlines):
        _check_every_box(repo, plan, save, manifest)
    body = to_bytes(manifest)
    digest = digest_of(body)
    key = manifest_key(plan.run, save, digest)
    summary = Summary(
        created=manifest.created,
        bytes=manifest.bytes,
        stored_bytes=manifest.stored_bytes,
        world=manifest.world,
        metrics=manifest.meta.metrics,
        forked_from=manifest.forked_from,
        reason=manifest.meta.reason,
        replaces=plan.replaces,
    )
    record = committed(repo, plan.run, save, manifest=digest, size=len(body), summary=summary)
    create_same(repo.store, key, body)
    return outcome(decide(repo, record, save), save, record.write, digest)


def read_outlines(
    repo: Repository, plan: PlanRecord, save: SaveId, refs: Sequence[IndexRef]
) -> list[Outline]:
    """The outlines of all ranks' indexes, read from the store a few at a time; rank 0's first."""
    first = load_index(repo, plan.run, save, refs[0])
    shared = by_path(first.entries)
    own = outline(first, digest=refs[0].digest, size=refs[0].size)

    def read(ref: IndexRef) -> Outline:
        index = load_index(repo, plan.run, save, ref)
        if index.compact:
            known = {**shared, **by_path(index.entries)}
            check_shards(index, known, index_key(plan.run, save, ref.rank, ref.digest))
        return outline(index, digest=ref.digest, size=ref.size, entries=shared)

    return [own, *gather(read, refs[1:])]


def _check_every_box(repo: Repository, plan: PlanRecord, save: SaveId, manifest: Manifest) -> None:
    """Look through all indexes for the leaf that is not there once: twice, so that few boxes are in memory."""
    entries = by_path(manifest.entries)
    counts = Counts(manifest.entries)

    def each(use: Callable[[Index], None]) -> None:
        for ref in manifest.indexes:
            index = load_index(repo, plan.run, save, ref)
            check_shards(index, entries, index_key(plan.run, save, ref.rank, ref.digest))
            use(index)

    each(counts.count)
    doubtful = counts.doubtful()
    paths = frozenset(tensor.path for tensor in doubtful)
    each(lambda index: counts.note(index, paths))
    check_boxes(plan, doubtful, counts.boxes)


def await_ranks(
    repo: Repository,
    plan: PlanRecord,
    save: SaveId,
    *,
    timeout_s: float,
    sleep: Callable[[float], None],
    now: Callable[[], float],
) -> dict[int, IndexRef]:
    """The indexes of all ranks, when they are there. Raises `SaveTimeout`, `SaveAborted`, `DuplicateRank`."""
    deadline = now() + timeout_s
    wait = _SHORTEST_WAIT_S
    while missing := missing_ranks(refs := arrivals(repo, plan.run, save, plan.world), plan.world):
        standing = decision(repo, plan.run, save)
        if standing is not None and standing.state == "aborted":
            raise _given_up(standing)
        left = deadline - now()
        if left <= 0:
            raise SaveTimeout(
                f"save {save} of run {plan.run!r} has no index of {missing} after {timeout_s} s",
                hint="look at the logs of these ranks; the checkpoints before this save stand",
                run=plan.run,
                save=str(save),
                missing=tuple(rank for rank in range(plan.world) if rank not in refs),
            )
        sleep(min(wait, left))
        wait = min(2 * wait, _LONGEST_WAIT_S)
    return refs


def outcome(standing: CommitRecord, save: SaveId, write: str, manifest: str) -> Checkpoint:
    """The checkpoint, if the record that stands is one's own or says the same; else why it is not one."""
    if standing.state == "aborted":
        raise _given_up(standing)
    if standing.write != write and standing.manifest != manifest:
        raise SaveFailed(
            f"save {save} of run {standing.run!r} is committed with another manifest, {standing.manifest}",
            run=standing.run,
            save=str(save),
            ours=manifest,
            standing=standing.manifest,
        )
    return checkpoint_of(standing, standing.run, save)


def _given_up(standing: CommitRecord) -> SaveAborted:
    return SaveAborted(
        f"save {standing.save} of run {standing.run!r} was given up: {standing.why}",
        hint="the checkpoints before it stand; the next save begins anew",
        run=standing.run,
        save=standing.save,
        why=standing.why,
    )
