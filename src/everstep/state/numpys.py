"""NumPy's arrays, scalars and element types in a training state."""

from __future__ import annotations

from typing import Any

import numpy as np

from everstep.errors import InvalidManifest
from everstep.format.values import decode
from everstep.state.flattening import Flattening, refuse
from everstep.state.memory import Later, Like
from everstep.state.numpy_arrays import NumpyHeld, dtype_text, parse_dtype
from everstep.state.restoring import Restoring
from everstep.state.saved import Saved

__all__ = ["NumpyArrayKind", "NumpyScalarKind"]


class NumpyArrayKind:
    """Arrays without Python objects in them; a memory map is saved as what it shows."""

    def claims(self, value: object) -> bool:
        """Whether it is an array."""
        return isinstance(value, np.ndarray)

    def flatten(self, value: np.ndarray[Any, Any], path: str, into: Flattening) -> None:
        """Write the array down as it lies in memory."""
        why = _unfit(value)
        if why:
            refuse(path, value, why)
        into.array(path, NumpyHeld(np.asarray(value)))

    def restore(self, live: np.ndarray[Any, Any], saved: Saved, into: Restoring) -> Later:
        """Fill the array in place; one that is read-only or repeats itself is replaced."""
        why = _unfit(live)
        if why:
            return into.problem(saved.path, f"cannot be filled: {why}")
        if not saved.array:
            return into.problem(saved.path, "is an array in the state and none in the checkpoint")
        held = NumpyHeld(np.asarray(live))
        extent = held.extent
        repeats = extent is not None and extent.repeats
        if live.flags.writeable and not repeats:
            into.fill(held, saved)
            return lambda: live
        return into.make(saved, "numpy") if into.check(held, saved) else lambda: None


def _unfit(value: np.ndarray[Any, Any]) -> str:
    if value.dtype.hasobject or value.dtype.kind == "T":
        return f"its element type {value.dtype} holds Python objects"
    if type(value) not in (np.ndarray, np.memmap):
        return "it is an array subclass with its own rules; save np.asarray of it"
    return ""


class NumpyScalarKind:
    """Scalars and element types, saved as a type's text and bytes."""

    def claims(self, value: object) -> bool:
        """Whether it is a scalar or an element type."""
        return isinstance(value, np.generic | np.dtype)

    def flatten(self, value: np.generic | np.dtype[Any], path: str, into: Flattening) -> None:
        """Write the scalar's bits."""
        dtype = value if isinstance(value, np.dtype) else value.dtype
        if dtype.hasobject or dtype.kind == "T":
            refuse(path, value, f"its element type {dtype} holds Python objects")
        if isinstance(value, np.dtype):
            into.mapping(path, "numpy_dtype", [("dtype", [dtype_text(dtype)])])
        else:
            into.mapping(path, "numpy_scalar", [("dtype", [dtype_text(dtype)]), ("bytes", value.tobytes())])

    def restore(self, live: np.generic | np.dtype[Any], saved: Saved, into: Restoring) -> Later:
        """Replace it."""
        return into.replace(live, saved)

    def builds(self, saved: Saved) -> bool:
        """Whether a scalar or a type was saved."""
        return saved.container is not None and saved.container.type in ("numpy_scalar", "numpy_dtype")

    def build(self, saved: Saved, like: Like, into: Restoring) -> Later:  # noqa: ARG002 - the type is stored
        """Make it anew."""
        made = [child.value for child in saved.children.values()]
        parts = [decode(entry.value) for entry in made if entry is not None]
        for child in saved.children.values():
            into.restored(child.path)
        try:
            dtype = parse_dtype(parts[0][0])
            if len(parts) == 1:
                return lambda: dtype
            scalar = np.frombuffer(parts[1], dtype)[0] if dtype.itemsize else dtype.type()
        except (IndexError, ValueError, TypeError) as error:
            raise InvalidManifest(
                f"{saved.path} is no scalar of NumPy", field="bytes", path=saved.path
            ) from error
        return lambda: scalar
