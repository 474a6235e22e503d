"""torch tensors in a training state."""

from __future__ import annotations

from typing import Any

import torch

from everstep.state.flattening import Flattening, refuse
from everstep.state.memory import Later
from everstep.state.restoring import Restoring
from everstep.state.saved import Saved
from everstep.state.sharded import TorchSharded, Unfit, as_dtensor, local_part, sharded
from everstep.state.sharded_tensors import as_sharded_tensor, sharded_by_list
from everstep.state.torch_arrays import Lanes, TorchHeld

__all__ = ["TensorKind", "memory_of", "plain", "spread", "unfit"]


class TensorKind:
    """Tensors: strided, of any device, parameters included; of one on several ranks, what this rank has."""

    def __init__(self) -> None:
        self._lanes = Lanes()

    def claims(self, value: object) -> bool:
        """Whether it is a tensor."""
        return isinstance(value, torch.Tensor)

    def flatten(self, value: torch.Tensor, path: str, into: Flattening) -> None:
        """Write the tensor down as it lies in memory."""
        held = self.live(value, into.rank, into.ranks, whole=into.world == 1)
        if isinstance(held, tuple):
            refuse(path, value, *held)
        for tensor in [held.tensor] if isinstance(held, TorchHeld) else [part[1] for part in held.held]:
            if tensor.is_cuda:
                self._lanes.open(tensor.device)
                into.at_end(self._lanes.synchronize)
        if isinstance(held, TorchHeld):
            into.array(path, held)
        else:
            into.sharded(path, held)

    def restore(self, live: torch.Tensor, saved: Saved, into: Restoring) -> Later:
        """Fill the tensor, or what this rank has of it, in place."""
        held = self.live(live, into.rank, None)
        if isinstance(held, tuple):
            return into.problem(saved.path, f"cannot be filled: {held[0]}")
        if not saved.array:
            return into.problem(saved.path, "is a tensor in the state and none in the checkpoint")
        if isinstance(held, TorchHeld):
            into.fill(held, saved)
        else:
            into.fill_sharded(held, saved)
        return lambda: live

    def live(
        self, value: torch.Tensor, rank: int, ranks: tuple[int, ...] | None, *, whole: bool = True
    ) -> TorchHeld | TorchSharded | Unfit:
        """The tensor as an array on rank ``rank``, or why it is none; ``ranks`` hold the same state (None: all).

        ``whole``: what one rank alone has on a mesh is an array like any other.
        """
        listed = as_sharded_tensor(value)
        if listed is not None:
            return sharded_by_list(listed, rank, self._lanes)
        dtensor = as_dtensor(value)
        here = value if dtensor is None else local_part(dtensor)
        why = unfit(here)
        if why is not None:
            return why
        if dtensor is None or (whole and not spread(dtensor)):
            return TorchHeld(here.detach(), self._lanes, _marks(value))
        marks = _marks(value)
        return sharded(dtensor, here, rank=rank, holders=ranks, lanes=self._lanes, marks=marks)


def spread(value: torch.Tensor) -> bool:
    """Whether it lies on several ranks, of which each has a part, or on others."""
    dtensor = as_dtensor(value)
    if dtensor is None:
        return as_sharded_tensor(value) is not None
    return dtensor.device_mesh.size() > 1 or dtensor.device_mesh.get_coordinate() is None


def plain(value: torch.Tensor) -> torch.Tensor:
    """The tensor itself, detached; of a DTensor what this rank has of it."""
    dtensor = as_dtensor(value)
    if dtensor is not None:
        return local_part(dtensor)
    return value if torch.nn.parameter.is_lazy(value) else value.detach()


def memory_of(value: torch.Tensor) -> tuple[str, int]:
    """Which memory a tensor's elements are in; of a part of one, even without elements, which storage it has."""
    storage = plain(value).untyped_storage()
    if as_dtensor(value) is not None:
        return "storage", storage._cdata  # noqa: SLF001 - an empty storage has no address
    return str(value.device), storage.data_ptr()


def unfit(tensor: torch.Tensor) -> Unfit | None:
    """Why a tensor has no bytes that could be saved or filled, and what to do."""
    if as_dtensor(tensor) is not None:
        tensor = plain(tensor)
    kind = type(tensor)
    overrides = kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
    if torch.nn.parameter.is_lazy(tensor):
        return "its shape is not known yet", "run the model once before"
    if tensor.is_meta:
        return (
            "it is on the meta device, without memory",
            "give it memory first, for instance with to_empty()",
        )
    if overrides and kind is not torch.nn.Parameter:
        return "it is a tensor subclass with its own rules", "save the tensors that it is made of"
    if tensor.layout is not torch.strided or tensor.is_nested:
        return f"its layout is {tensor.layout}", "save its indices and values, or make it dense"
    if tensor.dtype in (torch.quint4x2, torch.quint2x4):
        return f"its element type {tensor.dtype} packs several in a byte", "save it in another type"
    return None


def _marks(value: torch.Tensor) -> dict[str, Any]:
    """What a tensor is beside its elements: a parameter, or a leaf that gathers gradients."""
    if isinstance(value, torch.nn.Parameter):
        return {"parameter": True, "requires_grad": value.requires_grad}
    return {"requires_grad": True} if value.requires_grad and value.is_leaf else {}
