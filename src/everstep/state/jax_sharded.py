"""jax arrays on several devices: the boxes that are here, and new arrays made of boxes. Nothing is gathered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from everstep.errors import RestoreError
from everstep.format.box import Box
from everstep.format.entries import Layout, Tensor
from everstep.format.layouts import parts, sharers
from everstep.state.jax_layouts import box_of
from everstep.state.memory import Block, Bytes
from everstep.state.numpy_arrays import NumpyBytes, NumpyFresh
from everstep.state.sharing import Extent, View, row_major

__all__ = ["JaxBlocks", "JaxBytes", "JaxPieced", "JaxSharded", "not_narrowed", "once", "place_of"]


@dataclass(frozen=True, slots=True)
class JaxBytes:
    """The elements of an array on one device, row-major; they come to the host when they are asked for."""

    array: jax.Array

    def view(self) -> memoryview | None:
        """The memory, where it is this machine's; on another device there is none."""
        if self.array.is_deleted() or any(device.platform != "cpu" for device in self.array.devices()):
            return None
        return NumpyBytes(np.asarray(self.array)).view()

    def copy_to(self, into: memoryview) -> None:
        """Copy the elements out."""
        NumpyBytes(_on_host(self.array)).copy_to(into)

    def copy_from(self, filled: memoryview) -> None:
        """Never called: jax arrays do not change."""
        raise NotImplementedError(filled)


@dataclass(frozen=True, slots=True)
class JaxPieced:
    """The elements of an array that is cut over devices of this process, row-major."""

    array: jax.Array

    def view(self) -> memoryview | None:
        """None: it lies in several places."""
        return None

    def copy_to(self, into: memoryview) -> None:
        """Copy the elements out, shard by shard."""
        array = self.array
        target = _bare(np.frombuffer(into, f"V{array.dtype.itemsize}")).reshape(array.shape)
        for shard in _shards_here(array).values():
            target[shard.index] = _bare(_on_host(shard.data)).reshape(target[shard.index].shape)

    def copy_from(self, filled: memoryview) -> None:
        """Never called: jax arrays do not change."""
        raise NotImplementedError(filled)


def _on_host(array: jax.Array) -> np.ndarray[Any, Any]:
    """The elements of an array on one device; those of this machine's memory as they lie.

    jax keeps what it copied from a device for as long as the array lives, which would double the state in memory: a
    second array on the same buffer is asked, and goes.
    """
    if all(device.platform == "cpu" for device in array.devices()):
        return np.asarray(array)
    return np.asarray(jax.make_array_from_single_device_arrays(array.shape, array.sharding, [array]))


def _bare(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same memory as elements whose copies move bits unchanged."""
    size = array.dtype.itemsize
    return array.view(f"u{size}" if size <= 8 else f"V{size}")


def _shards_here(array: jax.Array) -> dict[Box, Any]:
    """The shards on this process's devices, each box once."""
    found: dict[Box, Any] = {}
    for shard in array.addressable_shards:
        found.setdefault(box_of(shard.index, array.shape), shard)
    return found


def place_of(array: jax.Array, shape: tuple[int, ...]) -> Extent:
    """A place of its own for each array, by identity: two names of one array are tied, nothing else can be."""
    return Extent(space=("jax", str(id(array))), address=0, item=1, shape=shape, strides=row_major(shape))


@dataclass(frozen=True, slots=True, kw_only=True)
class JaxSharded:
    """A live array on several processes; of a typed key, its words, and the key as ``origin``. This is ``rank``."""

    array: jax.Array
    extra: Mapping[str, Any]
    origin: jax.Array
    layout: Layout
    rank: int

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
        """Its global shape."""
        return tuple(self.array.shape)

    @property
    def extent(self) -> Extent:
        """Its place, on every rank."""
        return place_of(self.origin, self.shape)

    def blocks(self) -> Sequence[Block]:
        """The boxes on this process's devices."""
        shards = _shards_here(self.array)
        return [
            Block(
                box=part.box,
                part=JaxBytes(shards[part.box].data),
                replicas=sharers(self.layout, self.rank, part.coordinate),
            )
            for part in parts(self.layout, self.shape, self.rank)
        ]


class JaxBlocks:
    """New memory for the boxes of an array on this process's devices, and the array made of them."""

    def __init__(self, live: jax.Array, path: str) -> None:
        self._shape = tuple(live.shape)
        self._dtype = live.dtype.name
        self._sharding = live.sharding
        self._path = path
        self._memory: dict[Box, NumpyFresh] = {}
        for index in self._indices().values():
            box = box_of(index or (), self._shape)
            entry = Tensor(path=path, dtype=self._dtype, shape=box.sizes, framework="numpy")
            self._memory.setdefault(box, NumpyFresh(entry))

    def blocks(self) -> Iterator[tuple[Box, Bytes]]:
        """The boxes, and where their bytes go."""
        for box, memory in self._memory.items():
            if box.elements:
                yield box, memory.part()

    def make(self) -> jax.Array:
        """The array, as the live one lies. Raises `RestoreError` where jax would narrow the type."""
        local = self._sharding.shard_shape(self._shape)
        kind = self._sharding.memory_kind
        made = []
        for device, index in self._indices().items():
            box = box_of(index or (), self._shape)
            view = View(shape=box.sizes, strides=row_major(box.sizes), offset=0)
            host = self._memory[box].make(view).reshape(local)
            one = jax.sharding.SingleDeviceSharding(device, memory_kind=kind)
            made.append(not_narrowed(jax.device_put(host, one), host, self._path))
        return jax.make_array_from_single_device_arrays(self._shape, self._sharding, made)

    def _indices(self) -> Mapping[jax.Device, tuple[slice | int, ...] | None]:
        return self._sharding.addressable_devices_indices_map(self._shape)


def not_narrowed(made: jax.Array, host: np.ndarray[Any, Any], path: str) -> jax.Array:
    """The array made. Raises `RestoreError` where jax made another type of it."""
    if made.dtype.name != host.dtype.name:
        raise RestoreError(
            f"{path} is {host.dtype.name}, and jax makes it {made.dtype.name} here",
            hint="jax.config.update('jax_enable_x64', True)",
            path=path,
        )
    return made


def once(make: Callable[[], jax.Array]) -> Callable[[], jax.Array]:
    """The same array for all that ask."""
    found: list[jax.Array] = []

    def made() -> jax.Array:
        if not found:
            found.append(make())
        return found[0]

    return made
