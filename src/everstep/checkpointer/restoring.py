"""From a checkpoint to memory, and to an older checkpoint when the newest is damaged."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from everstep.errors import IntegrityError, InvalidManifest, UsageError
from everstep.events import FellBack, Listener
from everstep.format.entries import Entry, Tensor
from everstep.format.index import Index
from everstep.format.manifest import Manifest
from everstep.plan.load import plan_load
from everstep.repository.catalogue import checkpoint, decided
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.reading import read_index, read_manifest
from everstep.repository.repository import Repository
from everstep.state.flat import Coverage, Restoration
from everstep.transfer.download import download

__all__ = ["Restored", "check_on_corrupt", "fetch", "newest_whole"]

T = TypeVar("T")


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

    Raises what ``match`` raises before anything is read into the state; `IntegrityError` for damage.
    """
    manifest = read_manifest(repository, chosen)
    indexes = tuple(read_index(repository, chosen, ref) for ref in manifest.indexes)
    _check_held(chosen, manifest.entries, indexes)
    restoration = match(manifest.entries)
    reads = plan_load(restoration.wanted, indexes)
    download(
        repository.store,
        reads,
        restoration.wanted,
        run=chosen.run,
        step=chosen.step,
        budget_bytes=budget_bytes,
        workers=workers,
        listener=listener,
    )
    return Restored(
        value=restoration.finish(),
        checkpoint=chosen,
        manifest=manifest,
        indexes=indexes,
        coverage=restoration.coverage,
    )


def _check_held(chosen: Checkpoint, entries: Sequence[Entry], indexes: Sequence[Index]) -> None:
    """Refuse a tensor that is said to be larger than all its shards, before memory of that size is asked for."""
    held: Counter[str] = Counter()
    for index in indexes:
        for shard in index.shards:
            held[shard.path] += math.prod(shard.sizes)
    for entry in entries:
        if isinstance(entry, Tensor) and math.prod(entry.shape) > held[entry.path]:
            raise InvalidManifest(
                f"{chosen}: {entry.path} has the shape {entry.shape}, and the ranks hold {held[entry.path]} elements",
                hint="an older checkpoint may be whole: `everstep verify` lists what is damaged",
                run=chosen.run,
                step=chosen.step,
                path=entry.path,
            )


def newest_whole(
    repository: Repository,
    run: str,
    read: Callable[[Checkpoint], Restored[T]],
    *,
    on_corrupt: str,
    listener: Listener,
) -> Restored[T] | None:
    """The newest checkpoint that reads whole, or None when the run has none.

    With ``on_corrupt="previous"`` a damaged one, its commit record included, is passed over, loudly
    (`FellBack`). Raises the first one's error when it is not, or when all are damaged.
    """
    damage: tuple[int, IntegrityError] | None = None
    for save in decided(repository, run):
        try:
            candidate = checkpoint(repository, run, save)
            restored = None if candidate is None else read(candidate)
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
