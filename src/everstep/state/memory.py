"""Arrays in memory, of whatever framework: what the walk asks of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from everstep.state.sharing import Extent, Span, View

__all__ = ["MISSING", "Bytes", "Fresh", "Held", "Later", "Like", "Missing", "type_name"]


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


class Held(Protocol):
    """A live array. ``extra`` is what beside dtype and shape makes its elements mean what they mean."""

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
        """Where it lies; None when it cannot be tied to others."""
        ...

    def part(self, span: Span | None = None) -> Bytes:
        """Its elements, or a span of the memory around it."""
        ...

    def make(self, view: View) -> Any:
        """An array that shares its memory; it is contiguous."""
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
