"""The small objects around a save: store, run, attempt, plan, commit, tag. Each is created once."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = [
    "AttemptRecord",
    "CommitRecord",
    "Parent",
    "PlanRecord",
    "RunRecord",
    "StoreRecord",
    "Summary",
    "TagRecord",
]


class Parent(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint of any run of the same store."""

    run: str
    save: str


class StoreRecord(msgspec.Struct, frozen=True, kw_only=True):
    """``everstep.json``: what makes a place a store."""

    format: int
    id: str
    digest: str
    created: float
    version: str


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``catalogue/<run>.json``: that a run exists, since when, and from what it was forked.

    ``keep`` is the retention policy as the user wrote it; applied by prune.
    """

    format: int
    run: str
    created: float
    version: str
    parent: Parent | None = None
    keep: str = ""


class AttemptRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One launch of a run. ``id`` tells two claims of one number apart."""

    format: int
    run: str
    attempt: int
    id: str
    created: float
    owner: str
    world: int
    resumed_from: str = ""


class PlanRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first object of a save: the intent, and the saves whose packs it may refer to."""

    format: int
    run: str
    save: str
    world: int
    created: float
    bases: tuple[Parent, ...] = ()
    forked_from: Parent | None = None


class Summary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a list of checkpoints shows, so that a list need not open manifests."""

    created: float
    bytes: int
    stored_bytes: int
    world: int
    metrics: dict[str, Any] = {}
    forked_from: Parent | None = None


class CommitRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The one object whose creation decides a save: ``committed`` or ``aborted``. The first writer wins.

    ``write`` is random per writer, so that a lost answer can be told from a lost race. ``manifest`` is its
    digest and ``manifest_size`` its bytes; its key follows. ``why`` says why a save was aborted.
    """

    format: int
    run: str
    save: str
    state: str
    write: str
    decided: float
    manifest: str = ""
    manifest_size: int = 0
    summary: Summary | None = None
    why: str = ""


class TagRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A name for a checkpoint, and a pin: what is tagged is never pruned."""

    format: int
    tag: str
    run: str
    save: str
    created: float
