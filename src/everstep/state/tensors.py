"""torch tensors in a training state."""

from __future__ import annotations

from typing import Any

import torch

from everstep.errors import NotYetSupported
from everstep.state.flattening import Flattening, refuse
from everstep.state.memory import Later
from everstep.state.restoring import Restoring
from everstep.state.saved import Saved
from everstep.state.torch_arrays import Lanes, TorchHeld

__all__ = ["TensorKind", "plain", "unfit"]


class TensorKind:
    """Tensors: strided, of any device, parameters included."""

    def __init__(self) -> None:
        self._lanes = Lanes()

    def claims(self, value: object) -> bool:
        """Whether it is a tensor."""
        return isinstance(value, torch.Tensor)

    def flatten(self, value: torch.Tensor, path: str, into: Flattening) -> None:
        """Write the tensor down as it lies in memory."""
        tensor = plain(value, path)
        why = unfit(tensor)
        if why:
            refuse(path, value, *why)
        if tensor.is_cuda:
            self._lanes.open(tensor.device)
            into.at_end(self._lanes.synchronize)
        into.array(path, TorchHeld(tensor, self._lanes, _marks(value)))

    def restore(self, live: torch.Tensor, saved: Saved, into: Restoring) -> Later:
        """Fill the tensor in place."""
        tensor = plain(live, saved.path)
        why = unfit(tensor)
        if why:
            return into.problem(saved.path, f"cannot be filled: {why[0]}")
        if not saved.array:
            return into.problem(saved.path, "is a tensor in the state and none in the checkpoint")
        into.fill(TorchHeld(tensor), saved)
        return lambda: live


def plain(value: torch.Tensor, path: str) -> torch.Tensor:
    """The tensor itself, detached; of a DTensor on one rank its local part. Raises `NotYetSupported`."""
    from torch.distributed import is_available  # noqa: PLC0415 - only where a tensor is met

    if is_available() and type(value) is not torch.nn.Parameter and type(value) is not torch.Tensor:
        from torch.distributed.tensor import DTensor  # noqa: PLC0415 - slow to import, and seldom needed

        if isinstance(value, DTensor):
            if value.device_mesh.size() > 1:
                raise NotYetSupported(
                    f"{path} is a DTensor on {value.device_mesh.size()} ranks; this version saves one rank",
                    path=path,
                )
            return value.to_local().detach()
    return value if torch.nn.parameter.is_lazy(value) else value.detach()


def unfit(tensor: torch.Tensor) -> tuple[str, str] | None:
    """Why a tensor has no bytes that could be saved or filled, and what to do."""
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
