"""From the last index to the commit record. Any rank may do it, and a newer attempt: all make the same bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from everstep.errors import DisagreeingPlans, SaveAborted, SaveFailed, SaveTimeout
from everstep.format.digests import digest_of
from everstep.format.ids import SaveId
from everstep.format.index import Index
from everstep.format.manifest import IndexRef
from everstep.format.records import CommitRecord, PlanRecord, Summary
from everstep.format.wire import to_bytes
from everstep.repository.arrivals import arrivals, missing_ranks, name_ranks
from everstep.repository.checkpoint import Checkpoint, checkpoint_of
from everstep.repository.decisions import committed, decide, decision
from everstep.repository.keys import manifest_key
from everstep.repository.manifests import make_manifest
from everstep.repository.objects import create_same
from everstep.repository.parallel import gather
from everstep.repository.reading import load_index
from everstep.repository.repository import Repository

__all__ = ["await_ranks", "complete", "outcome"]

_SHORTEST_WAIT_S = 0.02
_LONGEST_WAIT_S = 2.0


def complete(repo: Repository, plan: PlanRecord, save: SaveId, refs: dict[int, IndexRef]) -> Checkpoint:
    """Make the manifest from the plan and all ranks' indexes, then the commit record.

    Raises `DisagreeingPlans`, `SaveAborted` when the save was given up first, an `IntegrityError` when
    an index is damaged, and the store's error when it cannot be proved that the record stands.
    """
    ordered = [refs[rank] for rank in sorted(refs)]
    indexes = gather(lambda ref: load_index(repo, plan.run, save, ref), ordered)
    _check_agreement(plan, indexes)
    manifest = make_manifest(plan, ordered, indexes)
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
    )
    record = committed(repo, plan.run, save, manifest=digest, size=len(body), summary=summary)
    create_same(repo.store, key, body)
    return outcome(decide(repo, record, save), save, record.write, digest)


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


def _check_agreement(plan: PlanRecord, indexes: Sequence[Index]) -> None:
    groups: dict[str, list[int]] = defaultdict(list)
    for index in indexes:
        groups[index.plan].append(index.rank)
    if len(groups) > 1:
        told = "; ".join(f"{name_ranks(ranks)} computed {digest[:16]}" for digest, ranks in groups.items())
        raise DisagreeingPlans(
            f"the ranks disagree about save {plan.save} of run {plan.run!r}: {told}",
            hint="all ranks must save the same names, shapes and layouts",
            run=plan.run,
            save=plan.save,
            ranks=tuple(tuple(ranks) for ranks in groups.values()),
        )
