"""A save under way, as each rank knows it."""

from __future__ import annotations

from dataclasses import dataclass

from everstep.format.digests import Digest
from everstep.format.ids import SaveId
from everstep.format.records import PlanRecord
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.fence import Attempt
from everstep.repository.keys import pack_key

__all__ = ["Save"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """A save under way. ``bases`` are the checkpoints whose chunks it may refer to instead of uploading them.

    ``agreed`` is the digest of rank 0's plan on a rank that joined: with the same one, its index leaves out what
    rank 0's has.
    """

    attempt: Attempt
    id: SaveId
    plan: PlanRecord
    bases: tuple[Checkpoint, ...]
    agreed: Digest | None = None

    @property
    def run(self) -> str:
        """The run it belongs to."""
        return self.plan.run

    @property
    def step(self) -> int:
        """The step it is made at."""
        return self.id.step

    @property
    def world(self) -> int:
        """How many ranks write an index."""
        return self.plan.world

    def pack_key(self, rank: int, n: int) -> str:
        """The key of the ``n``-th pack that a rank writes."""
        return pack_key(self.id, rank, n)
