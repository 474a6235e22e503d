"""What a user says about a save: configuration and metrics, as plain encoded values."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from everstep.errors import UnsupportedLeaf
from everstep.format.values import encode

__all__ = ["encode_config", "encode_metrics", "hold"]

Plain = bool | int | float | str | None


def hold(value: object) -> object:
    """A metric to be read later: of a torch tensor the values without the graph that made it."""
    torch = sys.modules.get("torch")
    return value.detach() if torch is not None and isinstance(value, torch.Tensor) else value


def encode_metrics(metrics: Mapping[str, object]) -> dict[str, Any]:
    """Each metric as an encoded number, text, bool or None; a 0-d array or tensor as its number."""
    return {name: encode(_plain(name, value)) for name, value in metrics.items()}


def _plain(name: str, value: object) -> Plain:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    item = _item(value)
    if isinstance(item, bool | int | float | str):
        return item
    raise UnsupportedLeaf(
        f"metric {name!r} is a {type(value).__name__}",
        hint="log numbers, text, or arrays of one element",
        path=name,
        type=type(value).__qualname__,
    )


def _item(value: object) -> object:
    """The one element of an array or tensor; None for anything else."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and isinstance(value, torch.Tensor):
        return value.item() if value.numel() == 1 else None
    if isinstance(value, np.generic | np.ndarray) or (jax is not None and isinstance(value, jax.Array)):
        array = np.asarray(value)
        return array.item() if array.size == 1 else None
    return None


def encode_config(config: object) -> Any:
    """The run's configuration, encoded. Raises `UnsupportedLeaf` for what is not plain values."""
    try:
        return encode(config)
    except TypeError as error:
        raise UnsupportedLeaf(
            f"config: {error}",
            hint="give plain values: dicts, lists, numbers, text, enums, paths, dates",
            path="config",
        ) from error
