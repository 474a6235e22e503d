"""torch modules, by their state dict."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch

from everstep.format.paths import join
from everstep.state.flattening import Flattening
from everstep.state.memory import Later, type_name
from everstep.state.objects import hand_over, take_state
from everstep.state.restoring import Restoring
from everstep.state.saved import Saved
from everstep.state.sharded import as_dtensor
from everstep.state.sharded_tensors import as_sharded_tensor
from everstep.state.tensors import memory_of, plain, spread, unfit

__all__ = ["ModuleKind", "bare", "clean"]

_WRAPPERS: Final = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
"""What compilation, FSDP 1 and activation checkpointing put into the names of what is in them."""


class ModuleKind:
    """Modules: parameters and buffers are filled in place, anything else goes through ``load_state_dict``."""

    def claims(self, value: object) -> bool:
        """Whether it is a module."""
        return isinstance(value, torch.nn.Module)

    def flatten(self, value: torch.nn.Module, path: str, into: Flattening) -> None:
        """Write the state dict of the module, without the wrappers of compilation and data parallelism."""
        module = bare(value)
        parameters = {clean(name): p for name, p in module.named_parameters(remove_duplicate=False)}
        state = take_state(module, path)
        items = [
            (name, parameters[name] if _stands_for(item, parameters.get(name)) else item)
            for name, item in zip(_names(state), state.values(), strict=True)
        ]
        with into.state_of(module, path):
            into.mapping(path, "module", items, name=type_name(module))

    def restore(self, live: torch.nn.Module, saved: Saved, into: Restoring) -> Later:
        """Fill the parameters and buffers; hand over the whole when there is more than these."""
        module = bare(live)
        entry = saved.container
        if entry is None or entry.type not in ("module", "stage", "object", "dict", "OrderedDict"):
            return into.problem(
                saved.path, f"is a {type_name(module)} in the state and no module in the checkpoint"
            )
        state = take_state(module, saved.path)
        own = set(_storages(module))
        keys = {join("", name): key for name, key in zip(_names(state), state, strict=True)}
        handed: set[str] = set()

        def put_back(text: str, item: Any, child: Saved) -> Later:
            if isinstance(item, torch.Tensor) and spread(item):
                if not _in_place(item, own):  # a copy that the module takes back by loading it, as it lies
                    handed.add(text)
                return into.restore(item, child)
            if (
                isinstance(item, torch.Tensor)
                and _in_place(item, own)
                and not _adapts(module, keys[text], item, child)
            ):
                return into.restore(item, child)
            handed.add(text)
            return into.build(child, lambda: item)

        found = into.children({text: state[key] for text, key in keys.items()}, saved, put_back)
        whole = bool(handed) or _has_hooks(module)

        def finish() -> torch.nn.Module:
            given: dict[str, Any] = OrderedDict(state)
            given.update({keys[text]: later() for text, later in found.items()})
            if whole:
                given._metadata = getattr(state, "_metadata", None)  # type: ignore[attr-defined]  # noqa: SLF001 - where torch keeps versions
                hand_over(module, given, saved.path)
            return live

        return finish


def bare(module: torch.nn.Module) -> torch.nn.Module:
    """The module inside the wrappers of ``torch.compile`` and of data parallelism, whose names differ by wrapper."""
    while True:
        compiled = sys.modules.get("torch._dynamo.eval_frame")
        if compiled is not None and isinstance(module, compiled.OptimizedModule):
            module = module._orig_mod  # noqa: SLF001 - the only way in
        elif isinstance(module, torch.nn.parallel.DistributedDataParallel | torch.nn.DataParallel):
            module = module.module
        else:
            return module


def clean(name: str) -> str:
    """A parameter's name without what wrappers of submodules put into it."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def _names(state: Mapping[str, Any]) -> list[str]:
    """The keys of a state dict without wrappers, where these are as many."""
    names = [clean(key) for key in state]
    return names if len(set(names)) == len(names) else list(state)


def _stands_for(item: Any, parameter: torch.nn.Parameter | None) -> bool:
    """Whether an item of a state dict is a parameter's own memory."""
    if parameter is None or not isinstance(item, torch.Tensor) or as_sharded_tensor(item) is not None:
        return False
    if (
        torch.nn.parameter.is_lazy(parameter)
        or item.shape != parameter.shape
        or item.dtype != parameter.dtype
    ):
        return False
    if as_dtensor(item) is not None:  # it has no address of its own
        return as_dtensor(parameter) is not None and memory_of(item) == memory_of(parameter)
    return item.data_ptr() == parameter.data_ptr()


def _storages(module: torch.nn.Module) -> Iterator[tuple[str, int]]:
    for tensor in (*module.parameters(), *module.buffers()):
        if unfit(tensor) is None:
            yield memory_of(tensor)


def _in_place(tensor: torch.Tensor, own: set[tuple[str, int]]) -> bool:
    """Whether filling this tensor fills the module."""
    if as_sharded_tensor(tensor) is not None or unfit(tensor) is not None:
        return False
    return (not spread(tensor) and not plain(tensor).numel()) or memory_of(tensor) in own


def _adapts(module: torch.nn.Module, key: str, item: torch.Tensor, child: Saved) -> bool:
    """Whether a tensor of another shape is for the submodule's own loading to take."""
    owner = module.get_submodule(key.rpartition(".")[0])
    if type(owner)._load_from_state_dict is torch.nn.Module._load_from_state_dict:  # noqa: SLF001 - what torch documents to override
        return False
    return (
        not type(owner).__module__.startswith("torch.nn.")
        and child.array
        and child.place().shape != item.shape
    )


def _has_hooks(module: torch.nn.Module) -> bool:
    """Whether somebody wants to be called when a state is loaded."""
    return any(
        inner._load_state_dict_post_hooks  # noqa: SLF001 - torch gives no other view of them
        or type(inner).load_state_dict is not torch.nn.Module.load_state_dict
        for inner in module.modules()
    )
