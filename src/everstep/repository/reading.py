"""Reading a checkpoint's manifest and indexes: digests compared, bounds checked, and nothing of another save."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from everstep.errors import CheckpointPruned, CorruptObject, MissingObject, ObjectNotFound
from everstep.format.check_index import check_shards
from everstep.format.digests import digest_of
from everstep.format.entries import Entry
from everstep.format.ids import SaveId
from everstep.format.index import Index
from everstep.format.manifest import IndexRef, Manifest
from everstep.format.wire import from_bytes
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.keys import index_key, manifest_key
from everstep.repository.parallel import gather
from everstep.repository.repository import Repository
from everstep.repository.tombs import tombed

__all__ = ["by_path", "load_index", "load_manifest", "read_index", "read_indexes", "read_manifest"]


def read_manifest(repo: Repository, checkpoint: Checkpoint) -> Manifest:
    """The checkpoint's manifest.

    Raises `CheckpointPruned` when it is gone because of a prune, else an `IntegrityError` naming the key.
    """
    try:
        return load_manifest(repo, checkpoint)
    except ObjectNotFound as error:
        raise _gone(repo, checkpoint, error) from error


def read_index(
    repo: Repository, checkpoint: Checkpoint, ref: IndexRef, entries: Mapping[str, Entry]
) -> Index:
    """One rank's index of a checkpoint, whose manifest has these ``entries`` by path (`by_path`).

    Its shards are boxes of these tensors, which a compact index does not list. Raises as `read_manifest` does.
    """
    try:
        index = load_index(repo, checkpoint.run, checkpoint.save, ref)
    except ObjectNotFound as error:
        raise _gone(repo, checkpoint, error) from error
    check_shards(index, entries, index_key(checkpoint.run, checkpoint.save, ref.rank, ref.digest))
    return index


def read_indexes(
    repo: Repository,
    checkpoint: Checkpoint,
    refs: Sequence[IndexRef] | None = None,
    *,
    manifest: Manifest | None = None,
) -> tuple[Index, ...]:
    """The indexes ``refs`` of a checkpoint, without ``refs`` all; several at a time, in order.

    The manifest is read when it is not given.
    """
    manifest = manifest or read_manifest(repo, checkpoint)
    entries = by_path(manifest.entries)
    wanted = manifest.indexes if refs is None else refs
    return tuple(gather(lambda ref: read_index(repo, checkpoint, ref, entries), wanted))


def by_path(entries: Sequence[Entry]) -> Mapping[str, Entry]:
    """Entries by path."""
    return {entry.path: entry for entry in entries}


def load_manifest(repo: Repository, checkpoint: Checkpoint) -> Manifest:
    """As `read_manifest`, with `ObjectNotFound` when it is gone."""
    key = manifest_key(checkpoint.run, checkpoint.save, checkpoint.manifest)
    body = repo.store.get(key, checkpoint.manifest_size)
    _check_digest(key, body, checkpoint.manifest, checkpoint.manifest_size)
    manifest = from_bytes(body, Manifest, what=key)
    _check_place(key, manifest, checkpoint.run, checkpoint.save)
    return manifest


def load_index(repo: Repository, run: str, save: SaveId, ref: IndexRef) -> Index:
    """One rank's index of any save; shards of tensors that it does not list are not checked yet (`check_shards`).

    Raises `ObjectNotFound`, or an `IntegrityError` naming the key.
    """
    key = index_key(run, save, ref.rank, ref.digest)
    body = repo.store.get(key, ref.size)
    _check_digest(key, body, ref.digest, ref.size)
    index = from_bytes(body, Index, what=key)
    _check_place(key, index, run, save)
    if index.rank != ref.rank:
        raise CorruptObject(f"{key} holds the index of rank {index.rank}", key=key)
    return index


def _check_digest(key: str, body: bytes, digest: str, size: int) -> None:
    if len(body) != size or (found := digest_of(body)) != digest:
        what = f"{len(body)} bytes instead of {size}" if len(body) != size else f"the digest {found}"
        raise CorruptObject(
            f"{key} is damaged: it has {what}",
            hint="restore an older checkpoint, or this one from a copy",
            key=key,
            size=size,
            digest=digest,
        )


def _check_place(key: str, found: Index | Manifest, run: str, save: SaveId) -> None:
    if found.run != run or found.save != str(save):
        raise CorruptObject(f"{key} belongs to {found.run} {found.save}", key=key)


def _gone(
    repo: Repository, checkpoint: Checkpoint, error: ObjectNotFound
) -> CheckpointPruned | MissingObject:
    if tombed(repo, checkpoint.run, checkpoint.save):
        return CheckpointPruned(
            f"{checkpoint} was pruned while it was read", run=checkpoint.run, step=checkpoint.step
        )
    return MissingObject(
        f"{checkpoint} needs an object that is gone: {error.message}",
        hint="restore an older checkpoint, or this one from a copy",
        run=checkpoint.run,
        step=checkpoint.step,
        **error.fields,
    )
