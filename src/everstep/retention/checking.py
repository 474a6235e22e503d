"""Whether the newest checkpoint is whole, before older ones are given up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from everstep.errors import CorruptObject, IntegrityError, MissingObject
from everstep.events import Listener
from everstep.format.index import Index
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.headers import size_of
from everstep.repository.parallel import gather
from everstep.repository.reading import read_indexes
from everstep.repository.repository import Repository
from everstep.repository.verified import mark_verified
from everstep.repository.verify import verify
from everstep.retention.marking import PackLists

__all__ = ["Check", "check_whole"]

Check = Literal["light", "full", "none"]


def check_whole(
    repo: Repository, newest: Checkpoint, check: Check, *, lists: PackLists, listener: Listener
) -> None:
    """Raise an `IntegrityError` naming the checkpoint if it is damaged.

    ``light``: manifest and indexes are read, and each pack is there and long enough for what is said to be in it.
    ``full``: every byte is read; what is whole gets its mark of verification.
    """
    if check == "none":
        return
    if check == "full":
        damage = verify(repo, newest, listener=listener)
        if damage:
            raise _damaged(newest, str(damage[0]), key=damage[0].key, damage=len(damage))
        mark_verified(repo, newest.run, newest.save, by="prune")
        return
    try:
        indexes = read_indexes(repo, newest, manifest=lists.manifest_now(newest))
    except IntegrityError as error:
        raise _damaged(newest, error.message, key=str(error.fields.get("key", ""))) from error
    needed = _needed(indexes)
    sizes = gather(lambda key: size_of(repo.store, key), list(needed))
    for (key, least), size in zip(needed.items(), sizes, strict=True):
        if size is None:
            raise _damaged(newest, f"the pack {key} is gone", kind=MissingObject, key=key)
        if size < least:
            raise _damaged(newest, f"{key} has {size} bytes, and {least} are referred to", key=key)
        lists.learn_size(key, size)


def _needed(indexes: Sequence[Index]) -> dict[str, int]:
    """The packs that indexes refer to, and how long each must be at least."""
    found = {key: 0 for index in indexes for key in index.packs}
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
