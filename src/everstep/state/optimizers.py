"""torch optimizers, by their state dict, without the casts that torch makes when it loads one."""

from __future__ import annotations

from itertools import chain
from typing import Any

import torch

from everstep.format.values import decode
from everstep.state.flattening import Flattening
from everstep.state.memory import Later, type_name
from everstep.state.objects import build_state, hand_over, take_state
from everstep.state.restoring import Restoring
from everstep.state.saved import Place, Saved
from everstep.state.tensors import plain, unfit
from everstep.state.torch_arrays import TorchHeld

__all__ = ["OptimizerKind"]


class OptimizerKind:
    """Optimizers: state tensors that are there already are filled in place, others are made anew."""

    def claims(self, value: object) -> bool:
        """Whether it is an optimizer."""
        return isinstance(value, torch.optim.Optimizer)

    def flatten(self, value: torch.optim.Optimizer, path: str, into: Flattening) -> None:
        """Write the state dict."""
        state = take_state(value, path)
        with into.state_of(value, path):
            into.mapping(path, "optimizer", list(state.items()), name=type_name(value))

    def restore(self, live: torch.optim.Optimizer, saved: Saved, into: Restoring) -> Later:
        """Fill what fits in place, then hand the whole to ``load_state_dict``."""
        entry = saved.container
        if entry is None or entry.type not in ("optimizer", "object", "dict"):
            return into.problem(
                saved.path, f"is a {type_name(live)} in the state and no optimizer in the checkpoint"
            )
        state = take_state(live, saved.path)
        wrong = _groups_problem(state, saved)
        if wrong:
            return into.problem(saved.path, wrong)
        with into.reusing(_InPlace()):
            later = build_state(saved, lambda: state, into)

        def finish() -> torch.optim.Optimizer:
            given = later()
            hand_over(live, given, saved.path)
            _undo_casts(live, given)
            return live

        return finish


class _InPlace:
    """Fills a live state tensor of the saved one's shape and type itself; each piece of memory once."""

    def __init__(self) -> None:
        self._taken: dict[int, Place] = {}

    def __call__(self, live: Any, saved: Saved, into: Restoring) -> Later | None:
        """The live tensor, once it is filled; None when a new one is to be made."""
        if not isinstance(live, torch.Tensor):
            return None
        tensor = plain(live, saved.path)
        if unfit(tensor) is not None or not into.fits(TorchHeld(tensor), saved):
            return None
        place = saved.place()
        if self._taken.setdefault(tensor.data_ptr(), place) != place:
            return None
        into.fill(TorchHeld(tensor), saved)
        return lambda: live


def _groups_problem(state: Any, saved: Saved) -> str:
    """Whether the groups of parameters differ in number or size."""
    groups = saved.child("param_groups")
    here = state.get("param_groups") if isinstance(state, dict) else None
    if groups is None or not isinstance(here, list):
        return ""
    was = _sizes(groups)
    now = [len(group["params"]) for group in here]
    if was is None or was == now:
        return ""
    return f"has parameter groups of sizes {now} in the state and {was} in the checkpoint"


def _sizes(groups: Saved) -> list[int] | None:
    if groups.value is not None:
        stored = decode(groups.value.value)
        return [len(group["params"]) for group in stored]
    sizes = []
    for group in groups.children.values():
        names = group.child("params")
        if names is None or names.value is None:
            return None
        sizes.append(len(decode(names.value.value)))
    return sizes


def _undo_casts(live: torch.optim.Optimizer, given: Any) -> None:
    """Put back what loading cast to the parameter's type: a bf16 parameter's fp32 moments stay fp32."""
    if not isinstance(given, dict) or not {"state", "param_groups"} <= given.keys():
        return
    numbers = chain.from_iterable(group["params"] for group in given["param_groups"])
    parameters = chain.from_iterable(group["params"] for group in live.param_groups)
    for number, parameter in zip(numbers, parameters, strict=True):
        stored = given["state"].get(number)
        held = live.state.get(parameter)
        if not isinstance(stored, dict) or not isinstance(held, dict):
            continue
        for name, value in stored.items():
            here = held.get(name)
            if (
                isinstance(value, torch.Tensor)
                and isinstance(here, torch.Tensor)
                and here.dtype != value.dtype
            ):
                held[name] = value.to(device=here.device)
