"""This process's number, and how many there are."""

from __future__ import annotations

from dataclasses import dataclass

from everstep.config import ProcessSettings
from everstep.errors import NotYetSupported

__all__ = ["Identity", "who_am_i"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One of ``world`` ranks, counted from 0."""

    rank: int
    world: int


def who_am_i(told: ProcessSettings) -> Identity:
    """The identity that a launcher gave this process; alone when there was no launcher.

    Raises `NotYetSupported` for more than one rank: this version saves from one.
    """
    if told.world_size > 1:
        raise NotYetSupported(
            f"this is rank {told.rank} of {told.world_size}; this version saves from one rank",
            hint="use one process, or unset RANK and WORLD_SIZE where only one of them saves",
            rank=told.rank,
            world=told.world_size,
        )
    return Identity(rank=told.rank, world=told.world_size)
