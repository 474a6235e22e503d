"""The walk that writes a training state down."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Never, Protocol

from everstep.errors import UnsupportedLeaf, UsageError
from everstep.format.box import Box
from everstep.format.dtypes import ITEM_BYTES
from everstep.format.entries import Alias, Container, Entry, Layout, Tensor, Value
from everstep.format.layouts import last_rank
from everstep.format.limits import MAX_DEPTH, MAX_PATH_CHARS
from everstep.format.paths import join
from everstep.format.values import encode
from everstep.state.flat import Flat, Piece, Source
from everstep.state.memory import Held, Sharded, type_name
from everstep.state.sharing import Own, Tie, View, share

__all__ = ["Flattening", "Writer", "refuse"]

_STAGES: Final = frozenset({"dict", "OrderedDict", "dataclass", "module", "optimizer", "object", "stage"})
"""Containers that can stand for a `Stage`."""


class Writer(Protocol):
    """A kind of value that can be written down."""

    def claims(self, value: object) -> bool:
        """Whether the value is of this kind."""
        ...

    def flatten(self, value: Any, path: str, into: Flattening) -> None:
        """Write the value and what is in it."""
        ...


@dataclass(frozen=True, slots=True)
class _Array:
    path: str
    held: Held
    ranks: tuple[int, ...] | None = None
    layout: Layout | None = None


@dataclass(frozen=True, slots=True)
class _Spread:
    path: str
    held: Sharded


class Flattening:
    """The entries and arrays met so far, on rank ``rank`` of ``world``.

    ``root`` is the state itself; ``ranks`` are those that hold what is being written now (None: all), and
    ``layout`` says so for a plain array of theirs, where the path does not.
    """

    def __init__(self, writers: Sequence[Writer], *, rank: int, world: int = 1) -> None:
        self.rank = rank
        self.world = world
        self.root: object = None
        self.ranks: tuple[int, ...] | None = None
        self.layout: Layout | None = None
        self._writers = writers
        self._found: list[Entry | _Array | _Spread] = []
        self._open: set[int] = set()
        self._closing: list[Callable[[], None]] = []
        self._depth = 0
        self._owner = ""

    def visit(self, value: object, path: str) -> None:
        """Write down a value of any kind. Raises `UnsupportedLeaf`."""
        if not path:
            self.root = value
        if len(path) > MAX_PATH_CHARS:
            refuse(path[:80] + "...", value, f"its path has more than {MAX_PATH_CHARS} characters")
        if id(value) in self._open:
            refuse(path, value, "it contains itself")
        if self._depth > MAX_DEPTH:
            refuse(path, value, f"it is nested more than {MAX_DEPTH} deep")
        for writer in self._writers:
            if writer.claims(value):
                break
        else:
            refuse(path, value)
        self._open.add(id(value))
        self._depth += 1
        try:
            writer.flatten(value, path, self)
        finally:
            self._depth -= 1
            self._open.discard(id(value))

    def not_in_a_state(self, value: object, path: str) -> None:
        """Refuse an object inside what ``state_dict()`` of another one gave: that comes back as plain data."""
        if self._owner:
            refuse(
                path,
                value,
                f"it is inside the state of {self._owner}, which would get plain data in its place",
            )

    @contextmanager
    def state_of(self, owner: object, path: str) -> Iterator[None]:
        """Inside is what ``state_dict()`` of an object gave."""
        self.not_in_a_state(owner, path)
        self._owner = type_name(owner)
        try:
            yield
        finally:
            self._owner = ""

    @contextmanager
    def held_by(self, ranks: tuple[int, ...] | None, layout: Layout | None = None) -> Iterator[None]:
        """Inside is what these ranks hold, and others may not have."""
        before = self.ranks, self.layout
        self.ranks, self.layout = ranks, layout
        try:
            yield
        finally:
            self.ranks, self.layout = before

    def stage(self, value: object, path: str) -> None:
        """Write a value with keys as a container ``stage``."""
        at = len(self._found)
        self.visit(value, path)
        entry = self._found[at]
        if not isinstance(entry, Container) or entry.type not in _STAGES:
            refuse(path, value, "a Stage is of a module, an optimizer, an object with a state, or a dict")
        self._found[at] = Container(path=path, type="stage", keys=entry.keys)

    def mapping(self, path: str, kind: str, items: Sequence[tuple[Any, Any]], *, name: str = "") -> None:
        """Write a container with keys, and its children."""
        paths: dict[str, object] = {}
        encoded = []
        for key, value in items:
            below = join(path, key)
            if below in paths:
                refuse(path, value, f"its keys {paths[below]!r} and {key!r} have the same text")
            paths[below] = key
            try:
                encoded.append(encode(key))
            except TypeError:
                refuse(path, key, f"it is a key, {key!r:.80}; keys are plain values")
        self._found.append(Container(path=path, type=kind, keys=encoded, name=name))
        for below, (_, value) in zip(paths, items, strict=True):
            self.visit(value, below)

    def sequence(self, path: str, kind: str, items: Sequence[Any], *, name: str = "") -> None:
        """Write a container without keys, and its children."""
        self._found.append(Container(path=path, type=kind, length=len(items), name=name))
        for n, value in enumerate(items):
            self.visit(value, join(path, n))

    def value(self, path: str, value: object) -> None:
        """Write a plain value."""
        try:
            self._found.append(Value(path=path, value=encode(value)))
        except TypeError as error:
            refuse(path, value, str(error))

    def array(self, path: str, held: Held) -> None:
        """Write an array; whether it is tied to another one is found at the end."""
        _known(held.dtype, path, held)
        self._found.append(_Array(path, held, self.ranks, self.layout))

    def sharded(self, path: str, held: Sharded) -> None:
        """Write an array that lies on several ranks, each of which calls this. Raises `UsageError`.

        It is tied to another one only where both are the same.
        """
        _known(held.dtype, path, held)
        if self.ranks is not None and self.layout is None:
            refuse(
                path,
                held,
                "it lies on several ranks, and PerRank is for what each rank has alone",
                "take it out of PerRank",
            )
        last = last_rank(held.layout)
        if last >= self.world:
            raise UsageError(
                f"{path} lies on rank {last}, and this save has {self.world} ranks, counted from 0",
                hint="everstep must know of all ranks: RANK and WORLD_SIZE, or torch.distributed, say how many",
                path=path,
                rank=last,
                world=self.world,
            )
        self._found.append(_Spread(path, held))

    def at_end(self, synchronize: Callable[[], None]) -> None:
        """Have this called when the copies begun must be done."""
        if synchronize not in self._closing:
            self._closing.append(synchronize)

    def done(self) -> Flat:
        """What was written down."""
        arrays = [item for item in self._found if isinstance(item, _Array | _Spread)]
        ties = iter(share([item.held.extent for item in arrays]))
        entries: list[Entry] = []
        pieces: list[Piece] = []
        for item in self._found:
            if not isinstance(item, _Array | _Spread):
                entries.append(item)
                continue
            tie = next(ties)
            if isinstance(tie, Tie):
                entries.append(_alias(item.path, arrays[tie.of].path, tie.view))
            elif isinstance(item, _Array):
                entry, piece = _own(item, tie)
                entries.append(entry)
                pieces.append(piece)
            else:
                entry = _spread(item)
                entries.append(entry)
                pieces += _blocks(item, entry)
        closing = tuple(self._closing)

        def synchronize() -> None:
            for close in closing:
                close()

        return Flat(entries=tuple(entries), pieces=tuple(pieces), synchronize=synchronize)


def _known(dtype: str, path: str, held: object) -> None:
    if dtype not in ITEM_BYTES:
        refuse(path, held, f"its element type {dtype} is not one that is saved")


def _alias(path: str, of: str, view: View | None) -> Alias:
    if view is None:
        return Alias(path=path, of=of)
    return Alias(path=path, of=of, shape=view.shape, strides=view.strides, offset=view.offset)


def _spread(item: _Spread) -> Tensor:
    held = item.held
    return Tensor(
        path=item.path,
        dtype=held.dtype,
        shape=held.shape,
        framework=held.framework,
        layout=held.layout,
        extra=dict(held.extra),
    )


def _blocks(item: _Spread, entry: Tensor) -> Iterator[Piece]:
    size = ITEM_BYTES[entry.dtype]
    for block in item.held.blocks():
        yield Piece(
            path=item.path,
            dtype=entry.dtype,
            box=block.box,
            nbytes=block.box.elements * size,
            source=block.part,
            replicas=block.replicas,
        )


def _own(item: _Array, own: Own) -> tuple[Tensor, Piece]:
    held = item.held
    extra = dict(held.extra)
    shape = held.shape
    if own.span is not None and own.view is not None:
        shape = (own.span.elements,)
        extra["view"] = {
            "shape": list(own.view.shape),
            "strides": list(own.view.strides),
            "offset": own.view.offset,
        }
    source: Source = held.part(own.span)
    entry = Tensor(
        path=item.path,
        dtype=held.dtype,
        shape=shape,
        framework=held.framework,
        layout=item.layout,
        extra=extra,
    )
    piece = Piece(
        path=item.path,
        dtype=held.dtype,
        box=Box.whole(shape),
        nbytes=math.prod(shape) * ITEM_BYTES[held.dtype],
        source=source,
        replicas=item.ranks,
    )
    return entry, piece


def refuse(path: str, value: object, why: str = "", hint: str = "") -> Never:
    """Raise `UnsupportedLeaf` for a value at a path."""
    kind = type_name(value)
    raise UnsupportedLeaf(
        f"{path or 'the state'} is of type {kind} and cannot be saved" + (f": {why}" if why else ""),
        hint=hint
        or "state is made of tensors, arrays, plain values, containers of these, and objects with "
        "state_dict and load_state_dict; leave this out, or give such an object",
        path=path,
        type=kind,
    )
