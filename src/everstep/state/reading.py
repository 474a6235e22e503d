"""Which bytes a restore reads, and where they go: into live arrays, into new ones, or through memory between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from everstep.format.box import Box
from everstep.format.dtypes import ITEM_BYTES
from everstep.format.entries import Tensor
from everstep.state.flat import Wanted
from everstep.state.memory import Bytes, Fresh, Held, Later, Sharded
from everstep.state.saved import Place
from everstep.state.sharing import Own, Span, Tie, View, share

__all__ = ["Reading"]


@dataclass(frozen=True, slots=True)
class _Fill:
    path: str
    place: Place
    held: Held


@dataclass(frozen=True, slots=True)
class _Spread:
    path: str
    place: Place
    held: Sharded


class Reading:
    """The boxes wanted, each read once though several arrays share its memory.

    First all is said (`fill`, `fill_sharded`, `make`, `blocks`, `whole`), then it is settled, then planned.
    """

    def __init__(self, fresh: Callable[[Tensor, str], Fresh]) -> None:
        self._fresh = fresh
        self._wanted: list[Wanted] = []
        self._fills: list[_Fill | _Spread] = []
        self._copies: list[Callable[[], None]] = []
        self._needed: dict[tuple[str, str], Tensor] = {}
        self._live: dict[str, Held] = {}
        self._memory: dict[tuple[str, str], Fresh | Held] = {}
        self._made: dict[tuple[str, str], Any] = {}

    def fill(self, path: str, place: Place, held: Held) -> None:
        """Have a live array, of the shape and type of the saved one at ``path``, filled in place."""
        self._fills.append(_Fill(path, place, held))

    def fill_sharded(self, path: str, place: Place, held: Sharded) -> None:
        """Have what is here of a live array filled in place."""
        self._fills.append(_Spread(path, place, held))

    def make(self, place: Place, framework: str, *, once: bool) -> Later:
        """Have an array made in new memory, or as a view of the live array that its bytes go to.

        ``once``: all that ask get the same array.
        """
        base = place.base
        key = (base.path, framework or base.framework)
        self._needed[key] = base
        if not once:
            return lambda: self._memory[key].make(place.view)

        def made() -> Any:
            if key not in self._made:
                self._made[key] = self._memory[key].make(place.view)
            return self._made[key]

        return made

    def whole(self, base: Tensor, target: Bytes) -> None:
        """Have all bytes of a saved array read."""
        self._want(base, Box.whole(base.shape), target)

    def blocks(self, place: Place, blocks: Iterable[tuple[Box, Bytes]]) -> None:
        """Have boxes of a saved array read; one that is a view of another's memory, or was, is read whole and cut."""
        base = place.base
        if place.whole and place.shape == base.shape:
            for box, target in blocks:
                self._want(base, box, target)
            return
        for box, target in blocks:
            self._cut(place, box, target)

    def settle(self) -> Iterator[tuple[str, str]]:
        """Find how each live array gets its bytes, now that all are known; gives paths and what is wrong there."""
        fills = self._fills
        ties = share([fill.held.extent for fill in fills])
        in_span = [
            isinstance(tie, Own) and _same_span(fill, tie) for fill, tie in zip(fills, ties, strict=True)
        ]
        for n, (fill, tie) in enumerate(zip(fills, ties, strict=True)):
            if isinstance(tie, Own):
                yield from self._fill(fill, tie.span if in_span[n] else None)
                continue
            owner, owner_tie = fills[tie.of], ties[tie.of]
            if not _tied_alike(fill, owner, tie):
                yield (
                    fill.path,
                    f"shares memory with {owner.path} in the state, and not so in the checkpoint",
                )
            elif (
                tie.view is not None and isinstance(owner_tie, Own) and owner_tie.span and not in_span[tie.of]
            ):
                yield from self._fill(fill, None)

    def planned(self) -> tuple[tuple[Wanted, ...], tuple[Callable[[], None], ...]]:
        """The boxes to read, and what to call when their bytes are there."""
        for key, base in self._needed.items():
            live = self._live.get(base.path)
            if live is not None and live.framework == key[1]:
                self._memory[key] = live
            else:
                memory = self._fresh(base, key[1])
                self._memory[key] = memory
                self.whole(base, memory.part())
        return tuple(self._wanted), tuple(self._copies)

    def _fill(self, fill: _Fill | _Spread, span: Span | None) -> Iterator[tuple[str, str]]:
        if isinstance(fill, _Spread):
            self.blocks(fill.place, [(block.box, block.part) for block in fill.held.blocks()])
            return
        place, held = fill.place, fill.held
        extent = held.extent
        if span is not None:
            self.whole(place.base, held.part(span))
        elif extent is not None and extent.repeats:
            yield fill.path, "repeats its elements in memory (it was expanded) and cannot be filled"
        elif place.whole:
            self.whole(place.base, held.part())
            if extent is not None and extent.dense and extent.size:
                self._live[place.base.path] = held
        else:
            self._cut(place, Box.whole(place.shape), held.part())

    def _cut(self, place: Place, box: Box, target: Bytes) -> None:
        key = (place.base.path, "raw")
        self._needed[key] = place.base
        inside = tuple(slice(o, o + n) for o, n in zip(box.offsets, box.sizes, strict=True))
        self._copies.append(lambda: target.copy_from(_rows(self._memory[key].make(place.view)[inside])))

    def _want(self, base: Tensor, box: Box, target: Bytes) -> None:
        nbytes = box.elements * ITEM_BYTES[base.dtype]
        self._wanted.append(Wanted(path=base.path, dtype=base.dtype, box=box, nbytes=nbytes, target=target))


def _rows(array: np.ndarray[Any, Any]) -> memoryview:
    """The elements of a view, row-major."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _same_span(fill: _Fill | _Spread, own: Own) -> bool:
    """Whether the live array and the saved one lie alike in a span of memory of one size."""
    view = fill.place.view
    return (
        own.span is not None
        and own.view is not None
        and fill.place.base.shape == (own.span.elements,)
        and _alike(own.view, view)
        and own.view.offset == view.offset
    )


def _tied_alike(fill: _Fill | _Spread, owner: _Fill | _Spread, tie: Tie) -> bool:
    """Whether two live arrays that share memory were saved sharing it in the same way."""
    if fill.place.base.path != owner.place.base.path:
        return False
    if tie.view is None:
        return fill.place.view == owner.place.view
    here, there = fill.held.extent, owner.held.extent
    assert here is not None, fill
    assert there is not None, owner
    moved = (here.address - there.address) // here.item
    return _alike(tie.view, fill.place.view) and moved == fill.place.view.offset - owner.place.view.offset


def _alike(one: View, other: View) -> bool:
    return one.shape == other.shape and all(
        n == 1 or a == b for n, a, b in zip(one.shape, one.strides, other.strides, strict=True)
    )
