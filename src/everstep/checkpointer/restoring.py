"""From a checkpoint to memory, and to an older checkpoint when the newest is damaged."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from everstep.errors import (
    Archived,
    CheckpointPruned,
    IntegrityError,
    InvalidManifest,
    MissingElements,
    UsageError,
)
from everstep.events import FellBack, Listener
from everstep.format.dtypes import ITEM_BYTES
from everstep.format.entries import Entry, Tensor
from everstep.format.ids import SaveId
from everstep.format.index import Index
from everstep.format.manifest import Manifest
from everstep.plan.load import plan_load
from everstep.plan.locate import locate
from everstep.plan.requests import Read
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.parallel import gather
from everstep.repository.readable import check_readable
from everstep.repository.readers import gone_or_pruned, reading_long
from everstep.repository.reading import by_path, read_index, read_manifest
from everstep.repository.repository import Repository
from everstep.state.flat import Coverage, Restoration
from everstep.store.protocol import Store
from everstep.transfer.download import download

__all__ = [
    "Prepared",
    "Restored",
    "bring",
    "check_on_corrupt",
    "fetch",
    "finished",
    "newest_whole",
    "prepare",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared(Generic[T]):
    """A restore that was checked and planned; nothing was changed yet."""

    checkpoint: Checkpoint
    manifest: Manifest
    indexes: tuple[Index, ...]
    restoration: Restoration[T]
    reads: tuple[Read, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored(Generic[T]):
    """What came back, from which checkpoint, and what of the state it covered."""

    value: T
    checkpoint: Checkpoint
    manifest: Manifest
    indexes: tuple[Index, ...]
    coverage: Coverage


def check_on_corrupt(on_corrupt: str) -> str:
    """``previous`` or ``fail``. Raises `UsageError`."""
    if on_corrupt not in {"previous", "fail"}:
        raise UsageError(
            f"on_corrupt={on_corrupt!r} is neither 'previous' nor 'fail'",
            hint="'previous' falls back to the newest checkpoint that verifies, 'fail' stops",
        )
    return on_corrupt


def fetch(
    repository: Repository,
    chosen: Checkpoint,
    match: Callable[[Sequence[Entry]], Restoration[T]],
    *,
    budget_bytes: int,
    workers: int,
    listener: Listener,
) -> Restored[T]:
    """Read one checkpoint: manifest, indexes, ranges; every byte verified before ``finish`` is called.

    Raises what ``match`` raises, and `Archived`, before anything is read into the state; `IntegrityError` for damage,
    `CheckpointPruned` when its bytes went meanwhile. A read of more than 20 s is pinned (`reading_long`).
    """
    prepared = prepare(repository, chosen, match)
    check_readable(repository, chosen, (read.key for read in prepared.reads))
    with reading_long(repository, chosen), gone_or_pruned(repository, chosen):
        bring(
            repository.store,
            prepared,
            prepared.reads,
            budget_bytes=budget_bytes,
            workers=workers,
            listener=listener,
        )
    return finished(prepared)


def prepare(
    repository: Repository, chosen: Checkpoint, match: Callable[[Sequence[Entry]], Restoration[T]]
) -> Prepared[T]:
    """Read the manifest, compare it with the state, find and read the few indexes needed, plan the ranges.

    The ranks to read from are told by arithmetic. Where that does not find all, the other indexes are read too.
    """
    manifest = read_manifest(repository, chosen)
    _check_sizes(chosen, manifest)
    restoration = match(manifest.entries)
    likely = locate(restoration.wanted, manifest.entries, manifest.world)
    indexes = _indexes(repository, chosen, manifest, likely)
    try:
        reads = plan_load(restoration.wanted, indexes)
    except MissingElements:
        if len(likely) == manifest.world:
            raise
        indexes = _indexes(repository, chosen, manifest, range(manifest.world))
        reads = plan_load(restoration.wanted, indexes)
    return Prepared(
        checkpoint=chosen, manifest=manifest, indexes=indexes, restoration=restoration, reads=reads
    )


def bring(
    store: Store,
    prepared: Prepared[T],
    reads: Sequence[Read],
    *,
    budget_bytes: int,
    workers: int,
    listener: Listener,
) -> None:
    """Read the ranges, verify every chunk, and put them where they belong.

    Raises what `download` raises. `Archived` comes from here only for packs that were moved to an archive tier since
    they were looked at (`readable`).
    """
    try:
        download(
            store,
            reads,
            prepared.restoration.wanted,
            run=prepared.checkpoint.run,
            step=prepared.checkpoint.step,
            budget_bytes=budget_bytes,
            workers=workers,
            listener=listener,
        )
    except Archived as error:
        raise Archived(
            f"{prepared.checkpoint}: {error.message}; the state was changed in part",
            hint=f"{error.hint}; restore again before you train on",
            **error.fields,
        ) from error


def finished(prepared: Prepared[T]) -> Restored[T]:
    """All bytes being there: the state's objects take what is theirs."""
    return Restored(
        value=prepared.restoration.finish(),
        checkpoint=prepared.checkpoint,
        manifest=prepared.manifest,
        indexes=prepared.indexes,
        coverage=prepared.restoration.coverage,
    )


def _indexes(
    repository: Repository, chosen: Checkpoint, manifest: Manifest, ranks: Iterable[int]
) -> tuple[Index, ...]:
    entries = by_path(manifest.entries)
    refs = [manifest.indexes[rank] for rank in ranks]
    return tuple(gather(lambda ref: read_index(repository, chosen, ref, entries), refs))


def _check_sizes(chosen: Checkpoint, manifest: Manifest) -> None:
    """Refuse tensors that are said to be larger than all that was stored, before memory of that size is asked for."""
    tensors = [entry for entry in manifest.entries if isinstance(entry, Tensor)]
    sizes = [math.prod(tensor.shape) * ITEM_BYTES[tensor.dtype] for tensor in tensors]
    if sum(sizes) > manifest.bytes:
        largest = tensors[sizes.index(max(sizes))]
        raise InvalidManifest(
            f"{chosen}: its tensors have {sum(sizes)} bytes, and the ranks hold {manifest.bytes};"
            f" {largest.path} has the shape {list(largest.shape)}",
            hint="an older checkpoint may be whole: `everstep verify` lists what is damaged",
            run=chosen.run,
            step=chosen.step,
            path=largest.path,
        )


def newest_whole(
    saves: Iterable[SaveId],
    read: Callable[[SaveId], Restored[T] | None],
    *,
    run: str,
    on_corrupt: str,
    listener: Listener,
) -> Restored[T] | None:
    """The newest of ``saves`` that reads whole, or None when none is a checkpoint.

    ``read`` gives None for a save that was aborted or pruned. With ``on_corrupt="previous"`` a damaged one, its
    commit record included, is passed over, loudly (`FellBack`). Raises the first one's error when it is
    not, or when all are damaged.
    """
    damage: tuple[int, IntegrityError] | None = None
    for save in saves:
        try:
            restored = read(save)
        except CheckpointPruned:
            continue  # while it was read: the newest is only ever replaced, and what has its place comes next
        except IntegrityError as error:
            if on_corrupt == "fail":
                raise
            damage = damage or (save.step, error)
            continue
        if restored is None:
            continue
        if damage:
            listener(
                FellBack(
                    run=run, damaged_step=damage[0], to_step=restored.checkpoint.step, error=str(damage[1])
                )
            )
        return restored
    if damage:
        raise damage[1]
    return None
