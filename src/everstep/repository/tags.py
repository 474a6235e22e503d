"""Tags: names that people give to checkpoints, and pins. What is tagged is never pruned."""

from __future__ import annotations

from collections.abc import Callable

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
from everstep.repository.keys import TAGS, tag_key
from everstep.repository.objects import listed, read_record
from everstep.repository.parallel import gather
from everstep.repository.replaced import lost
from everstep.repository.repository import Repository

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
    gets `AlreadyExists`. The tag is written before the checkpoint is looked at, so that a prune that
    goes on meanwhile either sees the tag or is seen: then the tag is taken back and `CheckpointPruned`
    raised. A tag on a checkpoint that was replaced (repacked) names the one that has its place.
    """
    key = tag_key(parse_tag(name))
    record = TagRecord(
        format=FORMAT_MAJOR,
        tag=name,
        run=checkpoint.run,
        save=str(checkpoint.save),
        created=repo.clock(),
    )
    standing = _read(repo, key)
    if standing is not None and (standing.run, standing.save) != (record.run, record.save):
        if not force:
            raise _taken(standing)
        repo.store.delete(key)
        standing = None
    if standing is None:
        standing = _create(repo, key, record)
    if lost(repo, checkpoint.run, checkpoint.save):
        repo.store.delete(key)
        raise CheckpointPruned(
            f"{checkpoint} was pruned and cannot be tagged", run=checkpoint.run, step=checkpoint.step
        )
    return standing


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
