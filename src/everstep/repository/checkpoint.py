"""A checkpoint, as its commit record describes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from everstep.errors import CorruptObject
from everstep.format.ids import SaveId
from everstep.format.records import CommitRecord, Parent
from everstep.format.values import decode
from everstep.repository.keys import commit_key

__all__ = ["Checkpoint", "checkpoint_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A committed save that was not pruned when it was looked up.

    ``created`` is in seconds since 1970 by the writer's clock. ``bytes`` is the state's size,
    ``stored_bytes`` what the save added to the store in packs. ``manifest`` is the manifest's digest.
    ``reason`` is why it was saved: ``due``, ``asked``, ``notice``, ``end``, or empty when saved by hand.
    ``replaces`` is the save whose place this one took, with the same content (repacked); most times empty.
    """

    run: str
    save: SaveId
    created: float
    bytes: int
    stored_bytes: int
    world: int
    metrics: Mapping[str, object]
    tags: tuple[str, ...]
    manifest: str
    manifest_size: int
    forked_from: Parent | None
    reason: str = ""
    replaces: str = ""

    @property
    def step(self) -> int:
        """The training step it belongs to."""
        return self.save.step

    @property
    def attempt(self) -> int:
        """The attempt that saved it."""
        return self.save.attempt

    @property
    def parent(self) -> Parent:
        """This checkpoint, as another save's record refers to it."""
        return Parent(run=self.run, save=str(self.save))

    def __str__(self) -> str:
        return f"{self.run}@{self.step}"


def checkpoint_of(record: CommitRecord, run: str, save: SaveId, tags: tuple[str, ...] = ()) -> Checkpoint:
    """What a commit record that says ``committed`` describes. Raises `CorruptObject` when it lacks something."""
    summary = record.summary
    if record.state != "committed" or summary is None or not record.manifest:
        key = commit_key(run, save)
        raise CorruptObject(f"the commit record {key} is committed without a manifest", key=key)
    return Checkpoint(
        run=run,
        save=save,
        created=summary.created,
        bytes=summary.bytes,
        stored_bytes=summary.stored_bytes,
        world=summary.world,
        metrics={name: decode(value) for name, value in summary.metrics.items()},
        tags=tags,
        manifest=record.manifest,
        manifest_size=record.manifest_size,
        forked_from=summary.forked_from,
        reason=summary.reason,
        replaces=summary.replaces,
    )
