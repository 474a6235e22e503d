"""What only some ranks have: the stages of a pipeline."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from everstep.errors import UsageError
from everstep.format.layouts import make_layout
from everstep.state.flattening import Flattening, refuse
from everstep.state.memory import Later
from everstep.state.restoring import Restoring
from everstep.state.saved import Saved

__all__ = ["Stage", "StageKind"]


class Stage:
    """A part of the state with leaves that other ranks may not have: a pipeline stage's module, its optimizer.

    ``value`` is the part: a module, an optimizer, another object with a state, a dict or a dataclass. Its leaves
    have the paths they would have without ``Stage``, and those of all ranks together are the saved part; so leaves
    of different stages need different names. What a restore does not find in the live part is another rank's.

    ``ranks`` are the ranks that hold the same stage, this one among them: an iterable of ints, or a torch
    ``DeviceMesh``, whose ranks it is. None: this rank alone has it. They share the writing.

    Raises `UsageError` when ``ranks`` is neither.
    """

    def __init__(self, value: object, ranks: Iterable[int] | Any | None = None) -> None:
        self.value = value
        self.ranks = None if ranks is None else _numbers(ranks)

    def __repr__(self) -> str:
        return f"Stage({self.value!r}, ranks={self.ranks})"


class StageKind:
    """Parts that are written as a container ``stage`` at their own path, and below it as without.

    The containers below it have, rank by rank, some of the keys. Tensors that are whole have a layout that
    names their ranks.
    """

    def claims(self, value: object) -> bool:
        """Whether it is a `Stage`."""
        return isinstance(value, Stage)

    def flatten(self, value: Stage, path: str, into: Flattening) -> None:
        """Write the part as held by the stage's ranks."""
        into.not_in_a_state(value, path)
        if into.ranks is not None and into.layout is None:
            refuse(path, value, "it is inside PerRank, of which each rank has its own already")
        ranks = _checked(value, path, into)
        layout = make_layout(shape=(len(ranks),), ranks=ranks, placements=("replicate",))
        with into.held_by(ranks, layout):
            into.stage(value.value, path)

    def restore(self, live: Stage, saved: Saved, into: Restoring) -> Later:
        """Put back what the live part has."""
        if isinstance(live.value, dict) and not live.value:
            return lambda: live
        with into.in_part():
            later = into.restore(live.value, saved)

        def finish() -> Stage:
            live.value = later()
            return live

        return finish


def _numbers(ranks: Any) -> tuple[int, ...]:
    meshes = sys.modules.get("torch.distributed.device_mesh")
    if meshes is not None and isinstance(ranks, meshes.DeviceMesh):
        ranks = ranks.mesh.flatten().tolist()
    listed = tuple(ranks) if isinstance(ranks, Iterable) and not isinstance(ranks, str | bytes) else ()
    if not listed or not all(type(rank) is int and rank >= 0 for rank in listed):
        raise UsageError(
            f"Stage got ranks={ranks!r:.80}; they are the numbers of the ranks that hold the same stage",
            hint="for instance ranks=[0, 1], ranks=mesh['dp'], or none where each rank has a stage of its own",
        )
    return tuple(sorted(set(listed)))


def _checked(value: Stage, path: str, into: Flattening) -> tuple[int, ...]:
    ranks = (into.rank,) if value.ranks is None else value.ranks
    if into.rank not in ranks:
        raise UsageError(
            f"{path} is a Stage of ranks {ranks}, and this is rank {into.rank}",
            hint="each rank gives its own stage, with the ranks that hold the same one",
            path=path,
            ranks=ranks,
        )
    if ranks[-1] >= into.world:
        raise UsageError(
            f"{path} is a Stage of ranks {ranks}, and there are {into.world} ranks, counted from 0",
            path=path,
            ranks=ranks,
        )
    if into.ranks is not None and not set(ranks) <= set(into.ranks):
        raise UsageError(
            f"{path} is a Stage of ranks {ranks} inside one of ranks {into.ranks}", path=path, ranks=ranks
        )
    return ranks
