"""Arrays in memory, of whatever framework: what the walk asks of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from everstep.format.box import Box
from everstep.format.entries import Layout
from everstep.state.sharing import Extent, Span, View

__all__ = [
    "MISSING",
    "Block",
    "Bytes",
    "Fresh",
    "Held",
    "Later",
    "Like",
    "Live",
    "Missing",
    "Sharded",
    "type_name",
]


class Missing:
    """There is no live value at this place."""


MISSING: Final = Missing()

Later = Callable[[], Any]
"""Gives the restored value once the bytes are there: the live one, changed in place, or its replacement."""

Like = Callable[[], Any]
"""Gives the live value at the same place, to take its class from, or `MISSING`."""


class Bytes(Protocol):
    """The bytes of an array, row-major and little-endian: a `Source` and a `Target` in one."""

    def view(self) -> memoryview | None:
        """The memory itself, where the bytes lie so; else None."""
        ...

    def copy_to(self, into: memoryview) -> None:
        """Copy all of them out; from a device the copy may still run on return."""
        ...

    def copy_from(self, filled: memoryview) -> None:
        """Take all of them."""
        ...


class Live(Protocol):
    """A live array, of which this rank may have a part.

    ``shape`` is that of the whole. ``extra`` is what beside dtype and shape makes its elements mean what they mean.
    """

    @property
    def framework(self) -> str:
        """Whose array it is: torch, numpy or jax."""
        ...

    @property
    def dtype(self) -> str:
        """Its element type, by the name the format knows."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape as stored."""
        ...

    @property
    def extra(self) -> Mapping[str, Any]:
        """What its framework needs beside, to make it again."""
        ...

    @property
    def extent(self) -> Extent | None:
        """Where it lies; None when it cannot be tied to others.

        Of an array on several ranks it is a place that only the same array has, on every rank: of the global shape,
        dense, and of a space of its own.
        """
        ...


class Held(Live, Protocol):
    """A live array that is whole on this rank."""

    def part(self, span: Span | None = None) -> Bytes:
        """Its elements, or a span of the memory around it."""
        ...

    def make(self, view: View) -> Any:
        """An array that shares its memory; it is contiguous."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One box of an array on several ranks that is here, its bytes, and the ranks that hold the same."""

    box: Box
    part: Bytes
    replicas: tuple[int, ...]


class Sharded(Live, Protocol):
    """A live array that lies on several ranks."""

    @property
    def layout(self) -> Layout:
        """How it lies on them, the same on every rank."""
        ...

    def blocks(self) -> Sequence[Block]:
        """The boxes that are here, none empty; there may be none."""
        ...


class Fresh(Protocol):
    """New memory for a saved array that no live one takes."""

    def part(self) -> Bytes:
        """All of it."""
        ...

    def make(self, view: View) -> Any:
        """The framework's array over it; all arrays made share the memory where the framework lets them."""
        ...


def type_name(value: object) -> str:
    """The full name of a value's type, for people."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
