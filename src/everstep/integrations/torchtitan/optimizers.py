"""torchtitan's optimizers: their state by the parameters' names, without the casts of torch's loading."""

from __future__ import annotations

from typing import Any

import torch
from torchtitan.components.optimizer import OptimizersContainer

__all__ = ["Optimizers"]


class Optimizers:
    """The state of an `OptimizersContainer`, filed by ``state.NAME`` and ``param_groups.NAME`` of each parameter."""

    def __init__(self, container: OptimizersContainer) -> None:
        self._container = container
        self._made: list[torch.optim.Optimizer] = []

    def taken(self) -> dict[str, dict[str, Any]]:
        """The state, referring to live memory. Optimizers that have none yet get one, of zeros."""
        self._made += [each for each in self._container if not each.state]
        filed: dict[str, dict[str, Any]] = {}
        for name, value in self._container.state_dict().items():
            of, _, what = name.rpartition(".")
            filed.setdefault(of, {})[what] = value
        return filed

    def give(self, filed: dict[str, dict[str, Any]]) -> None:
        """Hand a state back; its tensors become the optimizers' own, of the element type they have."""
        flat = {f"{of}.{what}": value for of, held in filed.items() for what, value in held.items()}
        self._container.load_state_dict(flat)
        for optimizer in self._container:
            for group in optimizer.param_groups:
                for name, parameter in zip(group["param_names"], group["params"], strict=True):
                    _keep(optimizer.state.get(parameter, {}), flat, f"state.{name}")

    def forget_made(self) -> None:
        """Take away what `taken` made and nothing was restored into, so that a first step counts as the first."""
        for optimizer in self._made:
            optimizer.state.clear()
        self._made = []


def _keep(held: dict[str, Any], flat: dict[str, Any], name: str) -> None:
    """Put the tensors that were given in the place of what ``load_state_dict`` cast them to."""
    for what in held:
        given = flat.get(f"{name}.{what}")
        if isinstance(given, torch.Tensor):
            held[what] = given
