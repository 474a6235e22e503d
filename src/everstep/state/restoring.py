"""The walk that finds where saved bytes go, and what does not fit, before anything is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any, Final, Protocol

from everstep.format.box import Box
from everstep.format.entries import Tensor
from everstep.state.flat import Coverage, Restoration
from everstep.state.memory import MISSING, Bytes, Fresh, Held, Later, Like, Live, Sharded
from everstep.state.mismatch import differs, mismatch
from everstep.state.reading import Reading
from everstep.state.saved import Saved

__all__ = ["Builder", "Reader", "Restoring"]

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
        self._reading = Reading(fresh)
        self._reuse: Callable[[Any, Saved, Restoring], Later | None] | None = None
        self._problems: list[tuple[str, str]] = []
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
        fits = self.check(held, saved)
        if fits:
            self.restored(saved.path)
            self._reading.fill(saved.path, saved.place(), held)
        return fits

    def fill_sharded(self, held: Sharded, saved: Saved) -> bool:
        """Have what is here of a live array filled in place; False when it does not fit, which is then a problem."""
        fits = self.check(held, saved)
        if fits:
            self.restored(saved.path)
            self._reading.fill_sharded(saved.path, saved.place(), held)
        return fits

    def check(self, held: Live, saved: Saved) -> bool:
        """Whether a live array that will be replaced has the saved one's shape and type; else it is a problem."""
        wrong = differs(held, saved.place())
        if wrong:
            self.problem(saved.path, wrong)
        return not wrong

    def blocks(self, saved: Saved, blocks: Iterable[tuple[Box, Bytes]]) -> None:
        """Have boxes of a saved array read, each into memory of its own."""
        self.restored(saved.path)
        self._reading.blocks(saved.place(), blocks)

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

    def fits(self, held: Live, saved: Saved) -> bool:
        """Whether a live array has the saved one's shape and type."""
        return saved.array and not differs(held, saved.place())

    def make(self, saved: Saved, framework: str = "") -> Later:
        """Have a saved array made in new memory, or as a view of the live array that its bytes go to."""
        self.restored(saved.path)
        place = saved.place()
        own = saved.everything[place.base.path].place().view
        return self._reading.make(place, framework, once=place.view == own)

    def read(self, saved: Saved, target: Bytes) -> None:
        """Have the bytes of a saved leaf read whole."""
        assert isinstance(saved.entry, Tensor), saved.entry
        self.restored(saved.path)
        self._reading.whole(saved.entry, target)

    # --- the end

    def done(self, finish: Callable[[], Any]) -> Restoration[Any]:
        """The restoration. Raises `RestoreMismatch` with all problems."""
        for path, what in self._reading.settle():
            self.problem(path, what)
        if self._problems:
            raise mismatch(self._problems)
        wanted, copies = self._reading.planned()

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
        return Restoration(wanted=wanted, coverage=coverage, finish=finish_all)


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
