"""A checkpoint with all that a choice depends on."""

from __future__ import annotations

from dataclasses import dataclass

from everstep.repository.checkpoint import Checkpoint

__all__ = ["Candidate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A checkpoint of which it is to be said whether it stays.

    ``verified`` when all its bytes were once read and found whole. ``pinned_by`` are those who are reading it.
    ``packs`` are those that it refers to, its own and others'; None where no budget asks for them.
    """

    checkpoint: Checkpoint
    verified: bool = False
    pinned_by: tuple[str, ...] = ()
    packs: frozenset[str] | None = None
