"""A loader's position, and which data-parallel rank it is of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchdata.stateful_dataloader import StatefulDataLoader
from torchtitan.components.dataloader import ParallelAwareDataloader

from everstep.errors import RestoreError

__all__ = ["Loader", "resized"]

_HINT = (
    "the data of one data-parallel rank cannot be dealt to others: train on as many, or set "
    "checkpoint.exclude_from_loading to ['dataloader'] to begin the data anew"
)


class Loader:
    """torchtitan's loader by the plain state of its dataset and iterator, where torchtitan itself writes a pickle."""

    def __init__(self, loader: ParallelAwareDataloader) -> None:
        self._loader = loader

    def state_dict(self) -> dict[str, Any]:
        """The position, and the data-parallel rank and how many there are."""
        return {
            "dp_rank": self._loader.dp_rank,
            "dp_world_size": self._loader.dp_world_size,
            "position": StatefulDataLoader.state_dict(self._loader),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on at a position. Raises `RestoreError` when it is another data-parallel rank's."""
        here = (self._loader.dp_rank, self._loader.dp_world_size)
        if (state["dp_rank"], state["dp_world_size"]) != here:
            raise RestoreError(
                f"the dataloader's position is of data-parallel rank {state['dp_rank']} of {state['dp_world_size']}, "
                f"and this is rank {here[0]} of {here[1]}",
                hint=_HINT,
            )
        StatefulDataLoader.load_state_dict(self._loader, state["position"])

    @property
    def dp_rank(self) -> int:
        """Which data-parallel rank's data it reads."""
        return int(self._loader.dp_rank)


def resized(loader: Loader) -> Callable[[list[Any], int, int], Any]:
    """Of the positions of another number of ranks, the one of this data-parallel rank."""

    def find(parts: list[Any], _rank: int, _world: int) -> Any:
        return next((part for part in parts if part["dp_rank"] == loader.dp_rank), parts[0])

    return find
