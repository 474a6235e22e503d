"""The walk that finds where saved bytes go, and what does not fit, before anything is changed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, Protocol

import numpy as np

from everstep.errors import RestoreMismatch
from everstep.format.box import Box
from everstep.format.dtypes import ITEM_BYTES
from everstep.format.entries import Tensor
from everstep.state.flat import Coverage, Restoration, Wanted
from everstep.state.memory import MISSING, Bytes, Fresh, Held, Later, Like
from everstep.state.saved import Place, Saved
from everstep.state.sharing import Own, Span, Tie, View, share

__all__ = ["Builder", "Reader", "Restoring"]

_SHOWN: Final = 20
_MEANING: Final = ("quantizer", "numpy", "key_impl")
"""Parts of ``extra`` that say what the elements mean."""
_SMALL: Final = frozenset({"numpy_scalar", "numpy_dtype", "torch_dtype", "torch_device", "torch_size"})
"""Containers that stand for one small value."""


class Reader(Protocol):
    """A kind of live value that can be put back."""

    def claims(self, value: object) -> bool:
        """Whether a live value is of this kind."""
        ...

    def restore(self, live: Any, saved: Saved, into: Restoring) -> Later:
        """Put what was saved into the live value, or replace it; what does not fit is a problem told to ``into``."""
        ...


class Builder(Protocol):
    """A kind of saved value that can be made without a live one."""

    def builds(self, saved: Saved) -> bool:
        """Whether it makes values from such an entry."""
        ...

    def build(self, saved: Saved, like: Like, into: Restoring) -> Later:
        """Make a new value from what was saved."""
        ...


@dataclass(frozen=True, slots=True)
class _Fill:
    saved: Saved
    place: Place
    held: Held


class Restoring:
    """What was found so far: problems, boxes wanted, and what was left out because the caller named it.

    It is on rank ``rank`` of ``world``, or of an unknown number. ``free``: there is no live state, so that what
    needs a class of the program comes as plain data. ``partial``: what the state has no place for now is another
    rank's. ``root`` is the live state itself.
    """

    def __init__(
        self,
        readers: Sequence[Reader],
        builders: Sequence[Builder],
        *,
        rank: int,
        world: int | None = None,
        skip: Sequence[str] = (),
        free: bool = False,
        fresh: Callable[[Tensor, str], Fresh],
    ) -> None:
        self.rank = rank
        self.world = world
        self.free = free
        self.partial = False
        self.root: object = None
        self._readers = readers
        self._builders = builders
        self._skip = tuple(skip)
        self._fresh = fresh
        self._reuse: Callable[[Any, Saved, Restoring], Later | None] | None = None
        self._problems: list[tuple[str, str]] = []
        self._wanted: list[Wanted] = []
        self._fills: list[_Fill] = []
        self._copies: list[Callable[[], None]] = []
        self._needed: dict[tuple[str, str], Tensor] = {}
        self._live: dict[str, Held] = {}
        self._memory: dict[tuple[str, str], Fresh | Held] = {}
        self._made: dict[tuple[str, str], Any] = {}
        self._restored: dict[str, None] = {}
        self._missing: list[str] = []
        self._unexpected: list[str] = []
        self._skipped: list[str] = []
        self._resized: list[str] = []

    # --- what kinds call

    def restore(self, live: object, saved: Saved) -> Later:
        """Put a saved value into a live one of any kind."""
        if not saved.path:
            self.root = live
        for reader in self._readers:
            if reader.claims(live):
                return reader.restore(live, saved, self)
        return self.build(saved, lambda: live)

    def build(self, saved: Saved, like: Like = lambda: MISSING) -> Later:
        """Make a saved value anew, of any kind."""
        if self._reuse is not None and saved.array:
            later = self._reuse(like(), saved, self)
            if later is not None:
                return later
        if saved.array:
            return self.make(saved)
        for builder in self._builders:
            if builder.builds(saved):
                return builder.build(saved, like, self)
        entry = saved.container
        kind = entry.type if entry else "?"
        return self.problem(saved.path, f"is of a kind, {kind}, that this version does not know")

    @contextmanager
    def reusing(self, reuse: Callable[[Any, Saved, Restoring], Later | None]) -> Iterator[None]:
        """Inside, `build` first asks whether a live array is to be filled in place of making a new one."""
        before, self._reuse = self._reuse, reuse
        try:
            yield
        finally:
            self._reuse = before

    @contextmanager
    def in_part(self) -> Iterator[None]:
        """Inside, saved leaves that the state has no place for are those of other ranks."""
        before, self.partial = self.partial, True
        try:
            yield
        finally:
            self.partial = before

    @contextmanager
    def freely(self) -> Iterator[None]:
        """Inside, what is built comes as plain data where it needs a class of the program."""
        before, self.free = self.free, True
        try:
            yield
        finally:
            self.free = before

    def skips(self, path: str) -> bool:
        """Whether the caller named this path, or one above it, as one to leave out."""
        if not self._skip:
            return False
        parts = path.split("/")
        above = ["/".join(parts[: n + 1]) for n in range(len(parts))]
        return any(fnmatchcase(part, pattern) for pattern in self._skip for part in above)

    def problem(self, path: str, what: str) -> Later:
        """Note what does not fit."""
        self._problems.append((path, what))
        return lambda: None

    def absent(self, path: str) -> None:
        """Note a part of the state that the checkpoint lacks."""
        if self.skips(path):
            self._missing.append(path)
        else:
            self.problem(path, "is in the state and not in the checkpoint")

    def left_out(self, path: str) -> None:
        """Note a part that both have and the caller named to skip."""
        self._skipped.append(path)

    def resized(self, path: str) -> None:
        """Note a part by rank that was saved by another number of ranks."""
        self._resized.append(path)

    def restored(self, path: str) -> None:
        """Note a leaf that will be put back."""
        self._restored[path] = None

    def children(
        self,
        live: Mapping[str, Any],
        saved: Saved,
        how: Callable[[str, Any, Saved], Later] | None = None,
    ) -> dict[str, Later]:
        """Put children back by their keys' text: those on both sides; the others are problems, or named to skip.

        ``how`` is asked for each, with its text, the live value and the saved one; by default `restore`.
        """
        found: dict[str, Later] = {}
        for text, value in live.items():
            path = f"{saved.path}/{text}" if saved.path else text
            child = saved.children.get(text)
            if child is None:
                self.absent(path)
            elif self.skips(path):
                self.left_out(path)
            else:
                found[text] = how(text, value, child) if how else self.restore(value, child)
        for text, child in saved.children.items():
            if text not in live:
                self.unplaced(child)
        return found

    def unplaced(self, saved: Saved) -> None:
        """Note a saved part that the state has no place for; below a `Stage` it is another rank's."""
        if self.partial:
            return
        for path in saved.leaves():
            if self.skips(path):
                self._unexpected.append(path)
            else:
                self.problem(path, "is in the checkpoint and not in the state")

    def fill(self, held: Held, saved: Saved) -> bool:
        """Have a live array filled in place; False when it does not fit, which is then a problem."""
        place = saved.place()
        wrong = _differs(held, place)
        if wrong:
            self.problem(saved.path, wrong)
            return False
        self.restored(saved.path)
        self._fills.append(_Fill(saved, place, held))
        return True

    def check(self, held: Held, saved: Saved) -> bool:
        """Whether a live array that will be replaced has the saved one's shape and type; else it is a problem."""
        wrong = _differs(held, saved.place())
        if wrong:
            self.problem(saved.path, wrong)
        return not wrong

    def replace(self, live: Any, saved: Saved) -> Later:
        """Put a saved value in the place of a live one without arrays; a list, set or bytearray is changed itself.

        None is a place kept for anything, an empty list one for any sequence.
        """
        entry = saved.container
        if live is not None and (
            saved.array or (entry is not None and not _replaces(live, entry.type, saved))
        ):
            what = "an array" if entry is None else f"a {entry.type}"
            return self.problem(saved.path, f"is a plain value in the state and {what} in the checkpoint")
        later = self.build(saved, lambda: live)
        return lambda: _put_in(live, later())

    def fits(self, held: Held, saved: Saved) -> bool:
        """Whether a live array has the saved one's shape and type."""
        return saved.array and not _differs(held, saved.place())

    def make(self, saved: Saved, framework: str = "") -> Later:
        """Have a saved array made in new memory, or as a view of the live array that its bytes go to."""
        place = saved.place()
        base = place.base
        key = (base.path, framework or base.framework)
        self._needed[key] = base
        self.restored(saved.path)
        if place.view != saved.everything[base.path].place().view:
            return lambda: self._memory[key].make(place.view)

        def once() -> Any:
            if key not in self._made:
                self._made[key] = self._memory[key].make(place.view)
            return self._made[key]

        return once

    def read(self, saved: Saved, target: Bytes) -> None:
        """Have the bytes of a saved leaf read whole."""
        assert isinstance(saved.entry, Tensor), saved.entry
        self.restored(saved.path)
        self._want(saved.entry, target)

    # --- the end

    def done(self, finish: Callable[[], Any]) -> Restoration[Any]:
        """The restoration. Raises `RestoreMismatch` with all problems."""
        self._settle()
        if self._problems:
            raise _mismatch(self._problems)
        for key, base in self._needed.items():
            live = self._live.get(base.path)
            if live is not None and live.framework == key[1]:
                self._memory[key] = live
            else:
                memory = self._fresh(base, key[1])
                self._memory[key] = memory
                self._want(base, memory.part())
        copies = tuple(self._copies)

        def finish_all() -> Any:
            for copy in copies:
                copy()
            return finish()

        coverage = Coverage(
            restored=tuple(self._restored),
            missing=tuple(self._missing),
            unexpected=tuple(self._unexpected),
            skipped=tuple(self._skipped),
            resized=tuple(self._resized),
        )
        return Restoration(wanted=tuple(self._wanted), coverage=coverage, finish=finish_all)

    def _settle(self) -> None:
        """Find how each live array gets its bytes, now that all are known: what shares memory is read once."""
        fills = self._fills
        ties = share([fill.held.extent for fill in fills])
        in_span = [
            isinstance(tie, Own) and _same_span(fill, tie) for fill, tie in zip(fills, ties, strict=True)
        ]
        for n, (fill, tie) in enumerate(zip(fills, ties, strict=True)):
            if isinstance(tie, Own):
                self._fill(fill, tie.span if in_span[n] else None)
                continue
            owner, owner_tie = fills[tie.of], ties[tie.of]
            if not _tied_alike(fill, owner, tie):
                path = owner.saved.path
                self.problem(
                    fill.saved.path, f"shares memory with {path} in the state, and not so in the checkpoint"
                )
            elif (
                tie.view is not None and isinstance(owner_tie, Own) and owner_tie.span and not in_span[tie.of]
            ):
                self._fill(fill, None)

    def _fill(self, fill: _Fill, span: Span | None) -> None:
        place, held = fill.place, fill.held
        extent = held.extent
        if span is not None:
            self._want(place.base, held.part(span))
        elif extent is not None and extent.repeats:
            self.problem(
                fill.saved.path, "repeats its elements in memory (it was expanded) and cannot be filled"
            )
        elif place.whole:
            self._want(place.base, held.part())
            if extent is not None and extent.dense and extent.size:
                self._live[place.base.path] = held
        else:
            key = (place.base.path, "raw")
            self._needed[key] = place.base
            self._copies.append(lambda: held.part().copy_from(_rows(self._memory[key].make(place.view))))

    def _want(self, base: Tensor, target: Bytes) -> None:
        box = Box.whole(base.shape)
        nbytes = math.prod(base.shape) * ITEM_BYTES[base.dtype]
        self._wanted.append(Wanted(path=base.path, dtype=base.dtype, box=box, nbytes=nbytes, target=target))


def _replaces(live: Any, kind: str, saved: Saved) -> bool:
    if kind in _SMALL:
        return True
    if not isinstance(live, list | tuple) or kind not in ("list", "tuple"):
        return False
    return not live or not saved.has_arrays


def _put_in(live: Any, made: Any) -> Any:
    if type(live) is not type(made):
        return made
    if isinstance(live, list | bytearray):
        live[:] = made
    elif isinstance(live, set):
        live.clear()
        live.update(made)
    else:
        return made
    return live


def _rows(array: np.ndarray[Any, Any]) -> memoryview:
    """The elements of a view, row-major."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _differs(held: Held, place: Place) -> str:
    if held.shape != place.shape:
        return f"has shape {list(held.shape)} in the state and {list(place.shape)} in the checkpoint"
    if held.dtype != place.base.dtype:
        return f"has dtype {held.dtype} in the state and {place.base.dtype} in the checkpoint"
    for name in _MEANING:
        one, other = held.extra.get(name), place.base.extra.get(name)
        if one != other:
            return f"has {name} {one} in the state and {other} in the checkpoint"
    return ""


def _same_span(fill: _Fill, own: Own) -> bool:
    """Whether the live array and the saved one lie alike in a span of memory of one size."""
    view = fill.place.view
    return (
        own.span is not None
        and own.view is not None
        and fill.place.base.shape == (own.span.elements,)
        and _alike(own.view, view)
        and own.view.offset == view.offset
    )


def _tied_alike(fill: _Fill, owner: _Fill, tie: Tie) -> bool:
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


def _mismatch(problems: list[tuple[str, str]]) -> RestoreMismatch:
    lines = [f"  {path or 'the state'} {what}" for path, what in problems[:_SHOWN]]
    if len(problems) > _SHOWN:
        lines.append(f"  and {len(problems) - _SHOWN} more")
    paths = list(dict.fromkeys(path for path, _ in problems))
    named = ", ".join(repr(path) for path in paths[:3])
    return RestoreMismatch(
        "the state and the checkpoint differ, and nothing was changed:\n" + "\n".join(lines),
        hint=f"to restore the rest, name what to leave out: strict=False, skip=[{named}{', ...' * (len(paths) > 3)}]",
        paths=paths,
        problems=[f"{path} {what}" for path, what in problems],
    )
