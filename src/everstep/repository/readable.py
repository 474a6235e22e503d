"""Whether all packs that a checkpoint needs can be read, before anything is changed: none lies in an archive tier."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from everstep.errors import Archived, ObjectNotFound, ShortRead
from everstep.repository.bringing_back import Lying, told
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.headers import size_of
from everstep.repository.parallel import gather
from everstep.repository.repository import Repository
from everstep.store.protocol import Store

__all__ = ["archived_among", "check_readable", "refuse"]

_HAVE_ARCHIVES = ("az:", "s3:")
"""GCS gives every class at once, and disks and memory have no tiers."""


def check_readable(repo: Repository, checkpoint: Checkpoint, packs: Iterable[str]) -> None:
    """Refuse a checkpoint of which any of these packs lies in an archive tier.

    Costs one read of one byte for each pack, 16 at a time; nothing on disks, in memory and on GCS. Raises `Archived`,
    with how much it is, what bringing it back costs, how long it takes, and by which commands.
    """
    needed = sorted(set(packs))
    refuse(repo, checkpoint, archived_among(repo.store, needed), of=len(needed))


def archived_among(store: Store, packs: Sequence[str]) -> list[str]:
    """Those of the packs that the store refuses to give, each asked for one byte; none where there are no archives.

    One that is gone or cut is no matter here: whoever reads it says which leaves it holds.
    """
    if not store.url.lower().startswith(_HAVE_ARCHIVES):
        return []
    errors = gather(lambda key: _asked(store, key), packs)
    return [key for key, error in zip(packs, errors, strict=True) if error is not None]


def refuse(repo: Repository, checkpoint: Checkpoint, packs: Sequence[str], *, of: int) -> None:
    """Raise `Archived` for these packs ``of`` so many that the checkpoint needs; none, or none any more: nothing.

    Each is asked again, and its size looked up by a list.
    """
    found = gather(lambda key: _lying(repo.store, key), packs)
    if lying := [one for one in found if one is not None]:
        raise told(checkpoint, lying, of=of)


def _lying(store: Store, key: str) -> Lying | None:
    error = _asked(store, key)
    return None if error is None else Lying(key=key, size=size_of(store, key) or 0, error=error)


def _asked(store: Store, key: str) -> Archived | None:
    try:
        store.get_range(key, 0, memoryview(bytearray(1)))
    except Archived as error:
        return error
    except (ObjectNotFound, ShortRead):
        return None
    return None
