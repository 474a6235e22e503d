"""What the ranks of a DCP save hand each other inside DCP's own plans and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan
from torch.distributed.checkpoint.storage import WriteResult

from everstep.errors import SaveFailed
from everstep.format.outline import Outline
from everstep.integrations.dcp.tree import Leaf
from everstep.repository.attempts import Attempt
from everstep.repository.checkpoint import Checkpoint

__all__ = ["Begun", "Joining", "Told", "begun_of", "result_of", "told_by"]

_NAME: Final = "everstep"
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """A rank to the coordinator, with its local plan: its global rank, and whether it is the coordinator itself."""

    rank: int
    coordinator: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """The coordinator to a rank, with its final plan: the save that was begun, and the rank's number in it.

    The coordinator is rank 0 of the checkpoint. ``bases`` are the save's, ``ranks`` the checkpoint's ranks by
    global rank. ``apart``: without collectives, each rank's plan being of all that it has.
    """

    attempt: Attempt
    announced: bytes
    bases: tuple[Checkpoint, ...]
    rank: int
    ranks: Mapping[int, int]
    apart: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A rank to the coordinator, with its results: the leaves it describes, and its index in short.

    The coordinator's own outline is absent: it writes its index last, with the leaves of all.
    """

    leaves: tuple[Leaf, ...]
    outline: Outline | None


def begun_of(plan: SavePlan) -> Begun:
    """What the coordinator handed over. Raises `SaveFailed`."""
    return _checked(plan.storage_data, Begun)


def result_of(told: Told) -> WriteResult:
    """As one more result."""
    return WriteResult(index=MetadataIndex(_NAME), size_in_bytes=0, storage_data=told)


def told_by(results: Sequence[Sequence[WriteResult]]) -> list[Told]:
    """What each rank told. Raises `SaveFailed` when one told nothing."""
    return [
        _checked(next((one.storage_data for one in each if one.storage_data is not None), None), Told)
        for each in results
    ]


def _checked(found: object, kind: type[T]) -> T:
    if not isinstance(found, kind):
        raise SaveFailed(
            f"DCP handed over {type(found).__name__} where everstep's {kind.__name__} belongs",
            hint="all ranks must save through everstep's StorageWriter, with a planner that keeps storage_data",
        )
    return found
