"""Small values that torch has of its own: element types, devices, shapes."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from typing import Any, Final

from everstep.errors import InvalidManifest
from everstep.format.values import decode
from everstep.state.flattening import Flattening
from everstep.state.memory import Later, Like
from everstep.state.restoring import Restoring
from everstep.state.saved import Saved

__all__ = ["TorchValueKind"]

_TYPES: Final = {"torch_dtype": "dtype", "torch_device": "device", "torch_size": "Size"}


class TorchValueKind:
    """An element type or device as its text, a shape as a tuple; so they come back where torch is not installed."""

    def claims(self, value: object) -> bool:
        """Whether it is one of these; none can be where torch is not imported."""
        torch = sys.modules.get("torch")
        return torch is not None and isinstance(value, torch.dtype | torch.device | torch.Size)

    def flatten(self, value: Any, path: str, into: Flattening) -> None:
        """Write its text."""
        torch: Any = sys.modules["torch"]
        if isinstance(value, torch.Size):
            into.mapping(path, "torch_size", [("shape", tuple(value))])
        elif isinstance(value, torch.device):
            into.mapping(path, "torch_device", [("name", str(value))])
        else:
            into.mapping(path, "torch_dtype", [("name", str(value).removeprefix("torch."))])

    def restore(self, live: Any, saved: Saved, into: Restoring) -> Later:
        """Replace it."""
        return into.replace(live, saved)

    def builds(self, saved: Saved) -> bool:
        """Whether one of these was saved."""
        return saved.container is not None and saved.container.type in _TYPES

    def build(self, saved: Saved, like: Like, into: Restoring) -> Later:  # noqa: ARG002 - the type is known
        """Make it anew."""
        entry = saved.container
        child = next(iter(saved.children.values()), None)
        if entry is None or child is None or child.value is None:
            raise InvalidManifest(f"{saved.path} holds no value", field="keys", path=saved.path)
        into.restored(child.path)
        stored = decode(child.value.value)
        made = _made(_TYPES[entry.type], stored, saved.path)
        return lambda: made


def _made(kind: str, stored: Any, path: str) -> Any:
    if importlib.util.find_spec("torch") is None:
        return stored
    torch = importlib.import_module("torch")
    makers: dict[str, Callable[[Any], Any]] = {
        "dtype": lambda name: getattr(torch, name),
        "device": torch.device,
        "Size": torch.Size,
    }
    try:
        made = makers[kind](stored)
    except (TypeError, AttributeError, RuntimeError, ValueError) as error:
        raise InvalidManifest(
            f"{path} is no torch.{kind}: {stored!r:.80}", field="value", path=path
        ) from error
    if not isinstance(made, getattr(torch, kind)):
        raise InvalidManifest(f"{path} is no torch.{kind}: {stored!r:.80}", field="value", path=path)
    return made
