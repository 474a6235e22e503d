"""The small objects around a save: store, run, attempt, plan, commit, tag. Each is created once."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = [
    "AnswerRecord",
    "AttemptRecord",
    "CommitRecord",
    "HeirRecord",
    "Parent",
    "PlanRecord",
    "ReaderRecord",
    "RequestRecord",
    "RunRecord",
    "StoreRecord",
    "Summary",
    "SweepRecord",
    "TagRecord",
    "TombRecord",
    "VerifiedRecord",
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
    """One launch of a run. ``id`` tells two claims of one number apart.

    ``keep`` and ``every`` are the retention policy and the cadence of this launch, as text; the newest attempt's
    are the run's.
    """

    format: int
    run: str
    attempt: int
    id: str
    created: float
    owner: str
    world: int
    resumed_from: str = ""
    keep: str = ""
    every: str = ""


class PlanRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first object of a save: the intent, and the saves whose packs it may refer to.

    ``replaces`` is the save of the same run, with the same step, attempt and content, whose place this one is to take
    (repacked).
    """

    format: int
    run: str
    save: str
    world: int
    created: float
    bases: tuple[Parent, ...] = ()
    forked_from: Parent | None = None
    replaces: str = ""


class Summary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a list of checkpoints shows, so that a list need not open manifests.

    ``reason`` is why it was saved: ``due`` (the cadence), ``asked``, ``notice`` (the process was told to stop),
    ``end`` (the last step); empty when the program saved by hand. ``replaces`` is the plan's.
    """

    created: float
    bytes: int
    stored_bytes: int
    world: int
    metrics: dict[str, Any] = {}
    forked_from: Parent | None = None
    reason: str = ""
    replaces: str = ""


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


class TombRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``runs/<run>/tombs/<save>``: that a checkpoint was pruned, and why.

    ``replaced_by`` is the save of the same run, with the same step and content, that took its place (repacked).
    """

    format: int
    run: str
    save: str
    created: float
    why: str
    replaced_by: str = ""


class SweepRecord(msgspec.Struct, frozen=True, kw_only=True):
    """``runs/<run>/sweeps/<save>``: what becomes of a pruned save, decided by who creates it first.

    Its bytes may be going from here on and it cannot be undeleted; or it is ``undeleted``, and no sweep touches it.
    """

    format: int
    run: str
    save: str
    created: float
    undeleted: bool


class ReaderRecord(msgspec.Struct, frozen=True, kw_only=True):
    """``readers/<reader>``: that a checkpoint is being read, and must not be swept meanwhile."""

    format: int
    reader: str
    run: str
    save: str
    owner: str
    created: float


class VerifiedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """``runs/<run>/verified/<save>``: that all bytes of a checkpoint were read and were what was written.

    ``by`` says in which way: ``verify``, ``restore``, ``prune``, or ``repack`` (which read what it moved).
    """

    format: int
    run: str
    save: str
    by: str
    created: float


class HeirRecord(msgspec.Struct, frozen=True, kw_only=True):
    """``runs/<run>/heirs/<heir>``: that the run ``heir`` may refer to packs of ``run``; written before it does."""

    format: int
    run: str
    heir: str
    created: float


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``runs/<run>/requests/<request>.json``: that somebody asks the running training for a save."""

    format: int
    run: str
    request: str
    owner: str
    created: float


class AnswerRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``runs/<run>/requests/<request>.answer.json``: the save that a training made for a request."""

    format: int
    run: str
    request: str
    save: str
