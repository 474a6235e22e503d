"""Whether the newest checkpoint is whole, before older ones are given up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from everstep.errors import CheckpointPruned, CorruptObject, IntegrityError, MissingObject
from everstep.events import Listener
from everstep.format.index import Index
from everstep.format.manifest import Manifest
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.keys import index_key, save_prefix
from everstep.repository.objects import listed
from everstep.repository.parallel import gather
from everstep.repository.reading import read_indexes
from everstep.repository.repository import Repository
from everstep.repository.tombs import tombed
from everstep.repository.verified import mark_verified
from everstep.repository.verify import verify
from everstep.retention.marking import PackLists
from everstep.retention.sweeping.looking import Overtaken

__all__ = ["Check", "check_whole"]

_FEW_RANKS = 16
Check = Literal["light", "full", "none"]


def check_whole(
    repo: Repository, newest: Checkpoint, check: Check, *, lists: PackLists, listener: Listener
) -> None:
    """Raise an `IntegrityError` naming the checkpoint if it is damaged; `Overtaken` if it was pruned meanwhile.

    ``light``: the manifest is read, and its packs are there. Of up to 16 ranks the indexes are read, and each pack is
    long enough for what is said to be in it; of more ranks one list shows that the indexes are there with their sizes.
    One list for each folder of packs, of which a save has at most 256. ``full``: every byte is read; what is whole
    gets its mark of verification.
    """
    try:
        _check(repo, newest, check, lists=lists, listener=listener)
    except CheckpointPruned as error:
        raise Overtaken from error
    except IntegrityError as error:
        if tombed(repo, newest.run, newest.save):
            raise Overtaken from error
        raise


def _check(
    repo: Repository, newest: Checkpoint, check: Check, *, lists: PackLists, listener: Listener
) -> None:
    if check == "none":
        return
    if check == "full":
        damage = verify(repo, newest, listener=listener)
        if damage:
            raise _damaged(newest, str(damage[0]), key=damage[0].key, damage=len(damage))
        mark_verified(repo, newest.run, newest.save, by="prune")
        return
    try:
        manifest = lists.manifest_now(newest)
        indexes: Sequence[Index] = ()
        if len(manifest.indexes) <= _FEW_RANKS:
            indexes = read_indexes(repo, newest, manifest=manifest)
        else:
            _check_indexes(repo, newest, manifest)
    except IntegrityError as error:
        key = str(error.fields.get("key", ""))
        raise _damaged(newest, error.message, kind=type(error), key=key) from error
    sizes = _sizes(repo, manifest.packs)
    for key, least in _needed(manifest.packs, indexes).items():
        if key not in sizes:
            raise _damaged(newest, f"the pack {key} is gone", kind=MissingObject, key=key)
        if sizes[key] < least:
            raise _damaged(newest, f"{key} has {sizes[key]} bytes, and {least} are referred to", key=key)
        lists.learn_size(key, sizes[key])


def _check_indexes(repo: Repository, newest: Checkpoint, manifest: Manifest) -> None:
    """Each index that the manifest names is there, with its size; one list."""
    there = {found.key: found.size for found in listed(repo.store, save_prefix(newest.run, newest.save))}
    for ref in manifest.indexes:
        key = index_key(newest.run, newest.save, ref.rank, ref.digest)
        if key not in there:
            raise MissingObject(f"the index {key} is gone", key=key)
        if there[key] != ref.size:
            raise CorruptObject(f"{key} has {there[key]} bytes instead of {ref.size}", key=key)


def _sizes(repo: Repository, packs: Sequence[str]) -> dict[str, int]:
    """The bytes of those packs that are there; one list for each of their folders."""
    folders = sorted({f"{key.rpartition('/')[0]}/" for key in packs})
    wanted = set(packs)
    pages = gather(lambda folder: [*listed(repo.store, folder)], folders)
    return {found.key: found.size for page in pages for found in page if found.key in wanted}


def _needed(packs: Sequence[str], indexes: Sequence[Index]) -> dict[str, int]:
    """The packs, and how long each must be at least by what these indexes say."""
    found = dict.fromkeys(packs, 0)
    for index in indexes:
        for shard in index.shards:
            for chunk in shard.chunks:
                key = index.packs[chunk.pack]
                found[key] = max(found[key], chunk.offset + chunk.length)
    return found


def _damaged(
    newest: Checkpoint, what: str, *, kind: type[IntegrityError] = CorruptObject, **fields: object
) -> IntegrityError:
    return kind(
        f"nothing was pruned: the newest checkpoint {newest} is damaged: {what}",
        hint=f"list all damage with: everstep verify {newest}; older checkpoints stand",
        run=newest.run,
        step=newest.step,
        **fields,
    )
