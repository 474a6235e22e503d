"""What rank 0 tells the other ranks when it has begun a save."""

from __future__ import annotations

import msgspec

from everstep.format.records import Parent, PlanRecord

__all__ = ["Announcement"]


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """The save's plan, which is in the store; those of its bases that stood after that; rank 0's plan digest."""

    format: int
    plan: PlanRecord
    bases: tuple[Parent, ...]
    digest: str
