"""Checkpoints from one store to another: packs under the same keys, verified; resumable; commit last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from everstep.errors import CheckpointPruned, UsageError
from everstep.events import Listener, silent
from everstep.format.digests import digest_of
from everstep.format.index import Index
from everstep.format.limits import FORMAT_MAJOR
from everstep.format.manifest import IndexRef, Manifest
from everstep.format.records import PlanRecord
from everstep.format.wire import to_bytes
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.completing import outcome
from everstep.repository.copying_packs import copy_packs
from everstep.repository.decisions import committed, decide, decision, read_decision
from everstep.repository.heirs import note_copied
from everstep.repository.keys import index_key, manifest_key, plan_key
from everstep.repository.lineage import copy_lineage
from everstep.repository.objects import create_same, exists
from everstep.repository.pins import check_pins, link, pins
from everstep.repository.plans import read_plan
from everstep.repository.readable import check_readable
from everstep.repository.readers import gone_or_pruned, reading_long
from everstep.repository.reading import read_indexes, read_manifest
from everstep.repository.repository import Repository
from everstep.repository.retitle import retitled
from everstep.repository.spans import places
from everstep.repository.tombs import tombed

__all__ = ["copy"]


def copy(
    source: Repository,
    chosen: Iterable[Checkpoint],
    destination: Repository,
    *,
    run: str | None = None,
    workers: int = 2,
    listener: Listener = silent,
) -> tuple[Checkpoint, ...]:
    """Copy checkpoints of one run into another store, as the run ``run`` (by default its own name).

    Step, attempt and save stay what they are; packs that a checkpoint shares with others come along.
    Every chunk is verified while it is copied; what an earlier, interrupted call has copied is verified
    there. Up to ``workers`` packs are in memory at a time. A checkpoint that is there already is left as
    it is. Returns the copies, oldest first. Tags are not copied.

    Raises `UsageError` when the destination has a run of this name with another history, `SaveAborted`
    or `CheckpointPruned` when the destination has given this save up, an `IntegrityError` for damage, `Archived`
    before any of a checkpoint is copied when a pack of it lies in an archive tier.
    """
    ordered = sorted(chosen, key=lambda one: (one.attempt, one.step))
    if not ordered:
        return ()
    origin = ordered[0].run
    name = run or origin
    if any(one.run != origin for one in ordered):
        raise UsageError("the checkpoints to copy belong to several runs", hint="copy one run at a time")
    if name == origin and source.record.id == destination.record.id:
        raise UsageError(f"run {origin!r} is in this store already", hint="name another store or another run")
    copy_lineage(source, origin, destination, name, last_attempt=ordered[-1].attempt)
    note_copied(destination, name, ordered[-1].attempt)
    return tuple(
        _copy(source, one, destination, name=name, workers=workers, listener=listener) for one in ordered
    )


def _copy(
    source: Repository,
    chosen: Checkpoint,
    destination: Repository,
    *,
    name: str,
    workers: int,
    listener: Listener,
) -> Checkpoint:
    manifest = read_manifest(source, chosen)
    indexes = read_indexes(source, chosen, manifest=manifest)
    texts, made = _renamed(manifest, indexes, name)
    body = to_bytes(made)
    digest = digest_of(body)
    standing = decision(destination, name, chosen.save)
    if standing is not None:
        there = outcome(standing, chosen.save, "", digest)
        if tombed(destination, name, chosen.save):
            raise CheckpointPruned(
                f"{there} was pruned from {destination.store.url}; a pruned save cannot come back there",
                hint="copy into another store, or another folder of this one",
                run=name,
                step=chosen.step,
            )
        return there
    check_readable(source, chosen, manifest.packs)
    check_pins(destination, _plan(destination, chosen, made))
    what = f"copy {chosen}"
    with reading_long(source, chosen), gone_or_pruned(source, chosen):
        copy_packs(
            source.store, destination.store, places(indexes), workers=workers, listener=listener, what=what
        )
    for ref, text in zip(made.indexes, texts, strict=True):
        create_same(destination.store, index_key(name, chosen.save, ref.rank, ref.digest), text)
    create_same(destination.store, manifest_key(name, chosen.save, digest), body)
    summary = read_decision(source, chosen.run, chosen.save).summary
    assert summary is not None
    record = committed(destination, name, chosen.save, manifest=digest, size=len(body), summary=summary)
    return outcome(decide(destination, record, chosen.save), chosen.save, record.write, digest)


def _plan(destination: Repository, chosen: Checkpoint, made: Manifest) -> PlanRecord:
    """The plan in the destination, written now unless an interrupted copy has left one."""
    key = plan_key(made.run, chosen.save)
    if exists(destination.store, key):
        return read_plan(destination, made.run, chosen.save)
    bases = pins(destination, made.packs, chosen.save, made.run)
    link(destination, bases, made.run)
    plan = PlanRecord(
        format=FORMAT_MAJOR,
        run=made.run,
        save=made.save,
        world=made.world,
        created=made.created,
        bases=bases,
        forked_from=made.forked_from,
    )
    create_same(destination.store, key, to_bytes(plan))
    return plan


def _renamed(manifest: Manifest, indexes: Sequence[Index], name: str) -> tuple[list[bytes], Manifest]:
    """The indexes' bytes and the manifest under another name; under the same name they do not change."""
    again = [
        retitled(index, ref, run=name, save=index.save, stored_bytes=index.stored_bytes)
        for index, ref in zip(indexes, manifest.indexes, strict=True)
    ]
    texts = [to_bytes(index) for index in again]
    refs = tuple(
        IndexRef(rank=index.rank, digest=digest_of(text), size=len(text))
        for index, text in zip(again, texts, strict=True)
    )
    return texts, replace(manifest, run=name, indexes=refs)
