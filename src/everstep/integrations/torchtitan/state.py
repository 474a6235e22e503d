"""What torchtitan's trainer has to be saved, as everstep's training state."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any, cast

import torch
from torch.distributed.tensor import DTensor
from torchtitan.components.checkpointer import DATALOADER, MODEL, OPTIMIZER
from torchtitan.components.dataloader import ParallelAwareDataloader

from everstep.integrations.torchtitan.loader import Loader, resized
from everstep.integrations.torchtitan.optimizers import Optimizers
from everstep.state.per_rank import PerRank
from everstep.state.stage import Stage

__all__ = ["TrainerState"]


class TrainerState(MutableMapping[str, Any]):
    """torchtitan's ``states``, read anew whenever they are asked for, and handed back part by part.

    The model is its state dict, the optimizers' state is filed by the parameters' names; of a pipeline, both are
    a `Stage`. The loader's position is `PerRank`. The others are objects with a state and stand as they are.
    """

    def __init__(self, states: dict[str, Any]) -> None:
        self._states = {name: part for name, part in states.items() if part is not None}
        self._optimizers = Optimizers(states[OPTIMIZER])

    def __iter__(self) -> Iterator[str]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)

    def __getitem__(self, name: str) -> Any:
        part = self._states[name]
        if name == MODEL:
            # not part.state_dict(): that fills the tensors of an earlier call again, those restored into too
            return self._of_stage(
                {key: value for module in part.model for key, value in module.state_dict().items()}
            )
        if name == OPTIMIZER:
            return self._of_stage(self._optimizers.taken())
        if name == DATALOADER:
            loader = Loader(part) if isinstance(part, ParallelAwareDataloader) else part
            return PerRank(loader, resize=resized(loader) if isinstance(loader, Loader) else None)
        return part

    def __setitem__(self, name: str, value: Any) -> None:
        """Hand a part back that was restored in memory: objects have taken theirs already."""
        if name not in (MODEL, OPTIMIZER):
            return
        given: Any = value.value if isinstance(value, Stage) else value
        if name == MODEL:
            self._states[MODEL].load_state_dict(given)
        else:
            self._optimizers.give(given)

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"{name} is a part of torchtitan's trainer and stays")

    def forget_made(self) -> None:
        """Undo that optimizers were given a state to restore into: there was nothing to restore there."""
        self._optimizers.forget_made()

    def _of_stage(self, part: dict[str, Any]) -> Any:
        """A pipeline's part with the ranks that have the same one; without a pipeline the part itself."""
        if not torch.distributed.is_initialized():
            return part
        ranks = _ranks_of(self._states[MODEL].model)
        everybody = not ranks or len(ranks) == torch.distributed.get_world_size()
        return part if everybody else Stage(part, ranks=ranks)


def _ranks_of(modules: list[torch.nn.Module]) -> list[int]:
    """The ranks over which a model's parameters are spread, in all their meshes."""
    meshes = {
        cast("DTensor", tensor).device_mesh
        for module in modules
        for tensor in module.parameters()
        if isinstance(tensor, DTensor)
    }
    return sorted({rank for mesh in meshes for rank in mesh.mesh.flatten().tolist()})
