"""torch optimizers, by the names of their parameters, without the casts that torch makes when it loads a state."""

from __future__ import annotations

from itertools import chain
from typing import Any, Final

import torch

from everstep.format.paths import join
from everstep.format.values import decode
from everstep.state.flattening import Flattening, refuse
from everstep.state.memory import Later, type_name
from everstep.state.named_optimizers import restore_named
from everstep.state.named_states import by_name
from everstep.state.objects import build_state, hand_over, take_state
from everstep.state.parameter_names import Naming, Parameters
from everstep.state.restoring import Restoring
from everstep.state.saved import Saved
from everstep.state.state_tensors import InPlace

__all__ = ["OptimizerKind"]

_FLATTENED: Final = "of whose parameters FSDP 1 has flattened some, each rank with a piece"


class OptimizerKind:
    """Optimizers: state tensors that are there already are filled in place, others are made anew.

    By the names of the parameters where all are known, else by their positions. The names are those in the
    modules of the same state, else those that the optimizer was given.
    """

    def __init__(self) -> None:
        self._parameters: Parameters | None = None

    def claims(self, value: object) -> bool:
        """Whether it is an optimizer."""
        return isinstance(value, torch.optim.Optimizer)

    def flatten(self, value: torch.optim.Optimizer, path: str, into: Flattening) -> None:
        """Write the state dict: by name as ``state``, ``param_groups`` without parameters, and ``members``."""
        _refuse_pieces(value, path)
        state = take_state(value, path)
        naming = self._naming(value, into.root)
        named = by_name(state, naming.saved) if naming is not None else None
        if into.layout is not None:
            _refuse_in_stage(value, path, named=named is not None)
        with into.state_of(value, path):
            into.mapping(path, "optimizer", list((named or state).items()), name=type_name(value))

    def restore(self, live: torch.optim.Optimizer, saved: Saved, into: Restoring) -> Later:
        """Fill what fits in place, then hand the whole to ``load_state_dict``."""
        entry = saved.container
        if entry is None or entry.type not in ("optimizer", "stage", "object", "dict"):
            return into.problem(
                saved.path, f"is a {type_name(live)} in the state and no optimizer in the checkpoint"
            )
        if _flattened(live):
            return into.problem(saved.path, f"is a {type_name(live)}, {_FLATTENED}")
        state = take_state(live, saved.path)
        if saved.child("members") is not None and saved.child("param_groups") is not None:
            naming = self._naming(live, into.root)
            later = restore_named(live, state, naming, saved, into)
        else:
            later = _by_position(live, state, saved, into)

        def finish() -> torch.optim.Optimizer:
            given = later()
            hand_over(live, given, saved.path)
            _undo_casts(live, given)
            return live

        return finish

    def _naming(self, optimizer: torch.optim.Optimizer, root: object) -> Naming | None:
        if self._parameters is None:
            self._parameters = Parameters(root)
        return self._parameters.naming(optimizer)


def _refuse_pieces(value: torch.optim.Optimizer, path: str) -> None:
    if any(kind.__name__ == "ZeroRedundancyOptimizer" for kind in type(value).__mro__):
        refuse(
            path,
            value,
            "each rank has the state of some parameters, in an optimizer of its own",
            "give that one: es.Stage(optimizer.optim); or spread the parameters by fully_shard instead",
        )
    if _flattened(value):
        refuse(
            path,
            value,
            f"it is one {_FLATTENED}",
            "use fully_shard, or give what FSDP.optim_state_dict returns",
        )


def _refuse_in_stage(value: torch.optim.Optimizer, path: str, *, named: bool) -> None:
    """Refuse what cannot be put together from several ranks' parts."""
    if not named:
        refuse(
            path,
            value,
            "it is in a Stage, and the names of its parameters are not known",
            "put the module that has them into the state, or make the optimizer of named_parameters()",
        )
    if isinstance(value, torch.optim.LBFGS):
        refuse(path, value, "it is in a Stage, and its state is of all parameters in order")


def _flattened(optimizer: torch.optim.Optimizer) -> bool:
    """Whether FSDP 1 has flattened parameters of it: a rank's piece tells neither its shape nor its place."""
    return any(
        getattr(parameter, "_fsdp_flattened", False)
        for group in optimizer.param_groups
        for parameter in group["params"]
    )


def _by_position(live: torch.optim.Optimizer, state: Any, saved: Saved, into: Restoring) -> Later:
    """The state dict as it was saved, of a live optimizer whose own is ``state``."""
    wrong = _groups_problem(state, saved)
    if wrong:
        return into.problem(saved.path, wrong)
    parameters = chain.from_iterable(group["params"] for group in live.param_groups)
    positions = {str(n): parameter for n, parameter in enumerate(parameters)}
    with into.reusing(InPlace(join(saved.path, "state"), positions)):
        return build_state(saved, lambda: state, into)


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
