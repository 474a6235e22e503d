"""Tags: names that people give to checkpoints. What is tagged is never pruned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from everstep.errors import (
    AlreadyExists,
    CheckpointNotFound,
    CheckpointPruned,
    CorruptObject,
    IntegrityError,
    ObjectNotFound,
    StoreUnavailable,
)
from everstep.format.ids import parse_tag
from everstep.format.limits import FORMAT_MAJOR
from everstep.format.records import TagRecord
from everstep.format.wire import to_bytes
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.fates import raise_up
from everstep.repository.keys import TAGS, tag_key
from everstep.repository.objects import listed, read_record
from everstep.repository.parallel import gather
from everstep.repository.readers import pinned
from everstep.repository.replaced import lost, successor
from everstep.repository.replaced import standing as in_place_of
from everstep.repository.repository import Repository
from everstep.repository.tombs import find_grave, tombed

__all__ = ["find_tag", "remove_tag", "set_tag", "tags"]


def tags(repo: Repository, *, on_damage: Callable[[IntegrityError], None] | None = None) -> list[TagRecord]:
    """All tags of the store, by name. A damaged one is given to ``on_damage`` and left out, else raised."""

    def read(key: str) -> TagRecord | None:
        try:
            return _read(repo, key)
        except IntegrityError as error:
            if on_damage is None:
                raise
            on_damage(error)
            return None

    keys = [found.key for found in listed(repo.store, TAGS)]
    found = [record for record in gather(read, keys) if record is not None]
    return sorted(found, key=lambda record: record.tag)


def find_tag(repo: Repository, name: str) -> TagRecord:
    """The tag of this name. Raises `CheckpointNotFound`."""
    record = _read(repo, tag_key(parse_tag(name)))
    if record is None:
        raise CheckpointNotFound(
            f"{repo.store.url} has no tag {name!r}", hint="list the tags with: everstep tag", tag=name
        )
    return record


def set_tag(repo: Repository, name: str, checkpoint: Checkpoint, *, force: bool = False) -> TagRecord:
    """Give a checkpoint a name. With ``force`` a name that another checkpoint has is moved.

    Moving is a delete and a create: in between the name is absent, and of two that move it at once one
    gets `AlreadyExists`. The checkpoint is pinned meanwhile (`readers`), so a prune that has chosen it before the
    tag was there cannot sweep it, and it is undeleted: no tag that was given or moved is ever taken back. One that
    was pruned before raises `CheckpointPruned`, and the name stays where it is. A tag on a checkpoint that was
    replaced (repacked) names the one that has its place.
    """
    key = tag_key(parse_tag(name))
    record = TagRecord(
        format=FORMAT_MAJOR,
        tag=name,
        run=checkpoint.run,
        save=str(checkpoint.save),
        created=repo.clock(),
    )
    held = replace(checkpoint, save=in_place_of(repo, checkpoint.run, checkpoint.save))
    with pinned(repo, held, owner=f"tag {name}"):
        if tombed(repo, held.run, held.save):
            if successor(repo, held.run, held.save) is None:
                raise _pruned(checkpoint)
            return set_tag(repo, name, checkpoint, force=force)  # replaced just now: that one is to be pinned
        standing = _read(repo, key)
        if standing is not None and (standing.run, standing.save) != (record.run, record.save):
            if not force:
                raise _taken(standing)
            repo.store.delete(key)
            standing = None
        if standing is None:
            standing = _create(repo, key, record)
        grave = find_grave(repo, held.run, held.save)
        if grave is not None and lost(repo, held.run, held.save) and not raise_up(repo, grave):
            raise _pruned(checkpoint)  # who could not write a pin, or stood still for days behind it
    return standing


def _pruned(checkpoint: Checkpoint) -> CheckpointPruned:
    return CheckpointPruned(
        f"{checkpoint} was pruned and cannot be tagged",
        hint=f"list what there is with: everstep ls {checkpoint.run}",
        run=checkpoint.run,
        step=checkpoint.step,
    )


def remove_tag(repo: Repository, name: str) -> TagRecord:
    """Take a name away; the checkpoint stays until a prune. Raises `CheckpointNotFound`."""
    record = find_tag(repo, name)
    repo.store.delete(tag_key(name))
    return record


def _create(repo: Repository, key: str, record: TagRecord) -> TagRecord:
    try:
        repo.store.create(key, to_bytes(record))
    except (AlreadyExists, StoreUnavailable) as error:
        standing = _read(repo, key)
        if standing is None:
            raise
        if (standing.run, standing.save) != (record.run, record.save):
            raise _taken(standing) from error
        return standing
    return record


def _taken(standing: TagRecord) -> AlreadyExists:
    return AlreadyExists(
        f"the tag {standing.tag!r} names {standing.run} {standing.save}",
        hint="move it with --force, or choose another name",
        tag=standing.tag,
        run=standing.run,
        save=standing.save,
    )


def _read(repo: Repository, key: str) -> TagRecord | None:
    try:
        record = read_record(repo.store, key, TagRecord)
    except ObjectNotFound:
        return None
    if tag_key(record.tag) != key:
        raise CorruptObject(f"{key} holds the tag {record.tag!r}", key=key)
    return record
