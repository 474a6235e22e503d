"""Where the tensors of an optimizer's state go: into those that are there, or into new ones like their parameter."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch

from everstep.format.paths import components
from everstep.state.memory import Later
from everstep.state.restoring import Restoring
from everstep.state.saved import Place, Saved
from everstep.state.tensors import TensorKind, plain, unfit
from everstep.state.torch_arrays import TorchHeld, dtype_name, dtype_of

__all__ = ["InPlace"]


class InPlace:
    """Fills a live tensor of the saved one's shape and type itself; each piece of memory once.

    Where there is none, and the parameter is spread over ranks, a tensor of its shape is made that is spread alike,
    of which this rank has its part in memory. ``parameters`` are given by the component below the optimizer's
    ``state``, which is at ``path``.
    """

    def __init__(self, path: str, parameters: Mapping[str, torch.Tensor]) -> None:
        self._depth = len(components(path))
        self._parameters = parameters
        self._taken: dict[int, Place] = {}

    def __call__(self, live: Any, saved: Saved, into: Restoring) -> Later | None:
        """The live tensor, once it is filled; None when a new one is to be made."""
        if isinstance(live, torch.Tensor):
            return self._fill(live, saved, into)
        at = components(saved.path)[self._depth :]
        parameter = self._parameters.get(at[0]) if len(at) > 1 and at[-1] != "step" else None
        place = saved.place()
        if parameter is None or not _spread(parameter) or place.shape != tuple(parameter.shape):
            return None
        with torch.no_grad():
            made = torch.empty_like(parameter, dtype=dtype_of(place.base.dtype), requires_grad=False)
        return TensorKind().restore(made, saved, into)

    def _fill(self, live: torch.Tensor, saved: Saved, into: Restoring) -> Later | None:
        place = saved.place()
        if _spread(live):
            local = live.to_local()  # type: ignore[attr-defined]
            fits = tuple(live.shape) == place.shape and dtype_name(live.dtype) == place.base.dtype
        else:
            local = plain(live, saved.path)
            fits = unfit(local) is None and into.fits(TorchHeld(local), saved)
        if not fits or (local.numel() and self._taken.setdefault(local.data_ptr(), place) != place):
            return None
        return TensorKind().restore(live, saved, into)


def _spread(tensor: torch.Tensor) -> bool:
    """Whether it is a DTensor."""
    dtensors = sys.modules.get("torch.distributed.tensor")
    return dtensors is not None and isinstance(tensor, dtensors.DTensor)
