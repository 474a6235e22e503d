"""jax arrays on one process or on several; typed random keys among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax

from everstep.errors import UsageError
from everstep.format.entries import Tensor
from everstep.state.flattening import Flattening, refuse
from everstep.state.jax_layouts import layout_of, process_of
from everstep.state.jax_sharded import (
    JaxBlocks,
    JaxBytes,
    JaxPieced,
    JaxSharded,
    not_narrowed,
    once,
    place_of,
)
from everstep.state.memory import Bytes, Later
from everstep.state.numpy_arrays import NumpyFresh
from everstep.state.restoring import Restoring
from everstep.state.saved import Saved
from everstep.state.sharing import Extent, Span, View

__all__ = ["JaxFresh", "JaxKind"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JaxHeld:
    """A live array that is whole here; of a typed key, its words, and the key as ``origin``.

    Two names of one array are tied; nothing else can be.
    """

    array: jax.Array
    extra: Mapping[str, Any]
    origin: jax.Array

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
    def extent(self) -> Extent | None:
        """A place of its own for each array, by identity."""
        return place_of(self.origin, self.shape)

    def part(self, span: Span | None = None) -> Bytes:
        """Its elements; of copies on several devices, those of one."""
        assert span is None, span
        if len(self.array.sharding.device_set) == 1:
            return JaxBytes(self.array)
        if self.array.is_fully_replicated:
            return JaxBytes(self.array.addressable_shards[0].data)
        return JaxPieced(self.array)

    def make(self, view: View) -> Any:
        """Never called: nothing is read into a live array of jax."""
        raise NotImplementedError(view)


class JaxKind:
    """Arrays of one process or several; they are replaced on restore, on the devices of the live ones.

    What is whole on every rank is a replica of each: arrays on devices of one process, and those that several
    processes have copies of. Others have a layout, and each rank has the boxes on its own devices.
    """

    def __init__(self) -> None:
        self._made: dict[Any, Later] = {}

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
        if value.is_fully_addressable:
            into.array(path, _held(value))
            return
        _same_rank(path, into.rank)
        holders = {process_of(device) for device in value.sharding.device_set}
        everyone = set(range(into.world)) if into.ranks is None else set(into.ranks)
        if value.is_fully_replicated and holders == everyone:
            into.array(path, _held(value))
        else:
            into.sharded(path, _sharded(value, path, into.rank))

    def restore(self, live: jax.Array, saved: Saved, into: Restoring) -> Later:
        """Make a new array where the live one is, on each device with what it has."""
        if not saved.array:
            return into.problem(saved.path, "is an array in the state and none in the checkpoint")
        held = _held(live)
        if not into.check(held, saved):
            return lambda: live
        sharding = live.sharding
        if len(sharding.device_set) == 1:
            later = into.make(saved, "jax")
            return lambda: jax.device_put(later(), sharding)
        place = saved.place()
        key = (place.base.path, place.view, held.array.sharding)
        into.restored(saved.path)
        if key not in self._made:
            memory = JaxBlocks(held.array, saved.path)
            into.blocks(saved, memory.blocks())
            self._made[key] = once(lambda: _wrapped(memory.make(), held.extra))
        return self._made[key]


def _same_rank(path: str, rank: int) -> None:
    if jax.process_index() != rank:
        raise UsageError(
            f"{path} lies on several processes of jax, of which this is {jax.process_index()}, and to everstep "
            f"it is rank {rank}",
            hint="call jax.distributed.initialize() before the Checkpointer is made; let RANK be the process index",
            path=path,
            rank=rank,
        )


def _held(value: jax.Array) -> JaxHeld:
    if jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        kind = str(jax.random.key_impl(value))
        return JaxHeld(array=jax.random.key_data(value), extra={"key_impl": kind}, origin=value)
    return JaxHeld(array=value, extra={}, origin=value)


def _sharded(value: jax.Array, path: str, rank: int) -> JaxSharded:
    held = _held(value)
    sharding = held.array.sharding
    partial = getattr(getattr(sharding, "spec", None), "unreduced", None)
    if partial:
        refuse(
            path,
            value,
            f"its devices hold partial sums over {', '.join(map(str, partial))}",
            "reduce it first",
        )
    layout = layout_of(sharding, held.shape)
    if layout is None:
        refuse(
            path,
            value,
            f"its {type(sharding).__name__} cuts it into parts that are no regular grid",
            "give it a jax.sharding.NamedSharding, for instance by jax.device_put",
        )
    return JaxSharded(array=held.array, extra=held.extra, origin=value, layout=layout, rank=rank)


def _wrapped(made: jax.Array, extra: Mapping[str, Any]) -> jax.Array:
    """The array, or the key of these words."""
    kind = extra.get("key_impl")
    return jax.random.wrap_key_data(made, impl=kind) if kind else made


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
        made = not_narrowed(jax.numpy.array(array), array, self._entry.path)
        return _wrapped(made, self._entry.extra)
