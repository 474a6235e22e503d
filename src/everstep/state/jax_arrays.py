"""jax arrays on one process; typed random keys among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from everstep.errors import NotYetSupported, RestoreError
from everstep.format.entries import Tensor
from everstep.state.flattening import Flattening, refuse
from everstep.state.memory import Bytes, Later
from everstep.state.numpy_arrays import NumpyBytes, NumpyFresh
from everstep.state.restoring import Restoring
from everstep.state.saved import Saved
from everstep.state.sharing import Extent, Span, View, row_major

__all__ = ["JaxFresh", "JaxKind"]


@dataclass(frozen=True, slots=True)
class JaxBytes:
    """An array's elements in row-major order; they come to the host when they are asked for."""

    array: jax.Array

    def view(self) -> memoryview | None:
        """The memory, where it is this machine's; on another device there is none."""
        if self.array.is_deleted() or any(device.platform != "cpu" for device in self.array.devices()):
            return None
        return NumpyBytes(np.asarray(self.array)).view()

    def copy_to(self, into: memoryview) -> None:
        """Copy the elements out."""
        NumpyBytes(np.asarray(self.array)).copy_to(into)

    def copy_from(self, filled: memoryview) -> None:
        """Never called: jax arrays do not change."""
        raise NotImplementedError(filled)


@dataclass(frozen=True, slots=True)
class JaxHeld:
    """A live array. Two names of one array are tied; nothing else can be."""

    array: jax.Array
    key_impl: str = ""
    origin: jax.Array | None = None

    @property
    def framework(self) -> str:
        """Whose it is."""
        return "jax"

    @property
    def dtype(self) -> str:
        """Its element type."""
        return self.array.dtype.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape; a key's with its words."""
        return tuple(self.array.shape)

    @property
    def extra(self) -> Mapping[str, Any]:
        """A key's kind."""
        return {"key_impl": self.key_impl} if self.key_impl else {}

    @property
    def extent(self) -> Extent | None:
        """A place of its own for each array, by identity."""
        shape = self.shape
        return Extent(
            space=("jax", str(id(self.origin))), address=0, item=1, shape=shape, strides=row_major(shape)
        )

    def part(self, span: Span | None = None) -> Bytes:
        """Its elements."""
        assert span is None, span
        return JaxBytes(self.array)

    def make(self, view: View) -> Any:
        """Never called: nothing is read into a live array of jax."""
        raise NotImplementedError(view)


class JaxKind:
    """Arrays that this process holds whole; they are replaced on restore, on the devices of the live ones."""

    def claims(self, value: object) -> bool:
        """Whether it is an array, and not one that is only traced."""
        return isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer)

    def flatten(self, value: jax.Array, path: str, into: Flattening) -> None:
        """Write the array, or a key's words."""
        if value.is_deleted():
            refuse(
                path,
                value,
                "it was deleted, or donated to a computation",
                "save what the computation returned",
            )
        _whole(value, path)
        into.array(path, _held(value))

    def restore(self, live: jax.Array, saved: Saved, into: Restoring) -> Later:
        """Make a new array where the live one is."""
        _whole(live, saved.path)
        if not saved.array:
            return into.problem(saved.path, "is an array in the state and none in the checkpoint")
        if not into.check(_held(live), saved):
            return lambda: live
        later = into.make(saved, "jax")
        sharding = live.sharding
        return lambda: jax.device_put(later(), sharding)


def _whole(value: jax.Array, path: str) -> None:
    if not value.is_fully_addressable:
        raise NotYetSupported(
            f"{path} is a jax array on several processes; this version saves one", path=path
        )


def _held(value: jax.Array) -> JaxHeld:
    if jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        return JaxHeld(jax.random.key_data(value), str(jax.random.key_impl(value)), value)
    return JaxHeld(value, "", value)


class JaxFresh:
    """New memory, and arrays made of it."""

    def __init__(self, entry: Tensor) -> None:
        self._memory = NumpyFresh(entry)
        self._entry = entry

    def part(self) -> Bytes:
        """All of it."""
        return self._memory.part()

    def make(self, view: View) -> jax.Array:
        """An array of jax. Raises `RestoreError` where jax would narrow the type."""
        array = self._memory.make(view)
        made = jax.numpy.array(array)
        if made.dtype.name != array.dtype.name:
            raise RestoreError(
                f"{self._entry.path} is {array.dtype.name}, and jax makes it {made.dtype.name} here",
                hint="jax.config.update('jax_enable_x64', True)",
                path=self._entry.path,
            )
        kind = self._entry.extra.get("key_impl")
        return jax.random.wrap_key_data(made, impl=kind) if kind else made
