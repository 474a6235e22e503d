"""Where the tensors of an optimizer's state go: into those that are there, or into new ones like their parameter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from everstep.format.paths import components
from everstep.state.memory import Later
from everstep.state.restoring import Restoring
from everstep.state.saved import Place, Saved
from everstep.state.sharded import as_dtensor, fresh_like
from everstep.state.tensors import TensorKind, plain
from everstep.state.torch_arrays import dtype_of

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
        self._tensors = TensorKind()
        self._taken: dict[int, Place] = {}

    def __call__(self, live: Any, saved: Saved, into: Restoring) -> Later | None:
        """The live tensor, once it is filled; None when a new one is to be made."""
        if isinstance(live, torch.Tensor):
            held = self._tensors.live(live, into.rank, None)
            if not isinstance(held, tuple) and into.fits(held, saved) and self._free(live, saved):
                return self._tensors.restore(live, saved, into)
        made = self._like_parameter(saved)
        return None if made is None else self._tensors.restore(made, saved, into)

    def _free(self, live: torch.Tensor, saved: Saved) -> bool:
        """Whether nothing else goes into this memory."""
        here, place = plain(live), saved.place()
        return not here.numel() or self._taken.setdefault(here.data_ptr(), place) == place

    def _like_parameter(self, saved: Saved) -> torch.Tensor | None:
        """A new DTensor for state of the shape of a parameter that is one; ``step`` is a number, never spread."""
        at = components(saved.path)[self._depth :]
        parameter = self._parameters.get(at[0]) if len(at) > 1 and at[-1] != "step" else None
        place = saved.place()
        if parameter is None or as_dtensor(parameter) is None or place.shape != tuple(parameter.shape):
            return None
        return fresh_like(parameter, dtype_of(place.base.dtype))
