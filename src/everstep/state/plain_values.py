"""Plain values: what `everstep.format.values` encodes, whole; long bytes and texts go to the packs."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePath
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

from everstep.errors import InvalidManifest
from everstep.format.entries import Tensor
from everstep.format.limits import MAX_DEPTH
from everstep.format.values import EnumValue, decode
from everstep.state.flattening import Flattening, refuse
from everstep.state.memory import Bytes, Later, Like
from everstep.state.restoring import Restoring
from everstep.state.saved import Saved
from everstep.state.sharing import Extent, Span, View

__all__ = ["PlainKind", "is_plain"]

_LONG: Final = 4096
_SCALARS: Final = frozenset(
    {
        type(None), bool, int, float, complex, str, bytes, bytearray, datetime, date, time, timedelta,
        timezone, ZoneInfo, Decimal, Fraction, UUID, range, slice, type(...), EnumValue,
    }
)  # fmt: skip
_TEXTS: Final = frozenset({str, bytes, bytearray})
_NESTS: Final = frozenset({list, tuple, set, frozenset})


def is_plain(value: object, depth: int = MAX_DEPTH) -> bool:
    """Whether a value, with all that is in it, is stored as one value: plain, and without long texts or enums."""
    kind = type(value)
    if kind in _TEXTS:
        return len(value) <= _LONG  # type: ignore[arg-type]
    if kind in _SCALARS or isinstance(value, PurePath):
        return True
    if depth < 0:
        return False
    if kind is dict:
        assert isinstance(value, dict), value
        return _all_plain(value.values(), depth) and _all_plain(value, depth)
    return kind in _NESTS and _all_plain(value, depth)  # type: ignore[arg-type]


def _all_plain(items: Iterable[object], depth: int) -> bool:
    kinds = set(map(type, items))
    if kinds <= _SCALARS - _TEXTS:
        return True
    return all(is_plain(item, depth - 1) for item in items)


class PlainKind:
    """Values stored in the list of entries itself, enums among them."""

    def claims(self, value: object) -> bool:
        """Whether it is stored whole; a dict's entries stand for themselves."""
        kind = type(value)
        if kind in _SCALARS or isinstance(value, enum.Enum | PurePath):
            return True
        return kind in (set, frozenset) or (kind in _NESTS and is_plain(value))

    def flatten(self, value: Any, path: str, into: Flattening) -> None:
        """Write the value."""
        if type(value) in _TEXTS and len(value) > _LONG:
            into.array(path, LongBytes(value))
            return
        if isinstance(value, slice | set | frozenset) and not _encodable(value):
            refuse(path, value, "what is in it is not plain")
        into.value(path, value)

    def restore(self, live: Any, saved: Saved, into: Restoring) -> Later:
        """Put the saved value in the place of the live one; a list, set or bytearray is changed itself."""
        return into.replace(live, saved)

    def builds(self, saved: Saved) -> bool:
        """Whether a plain value was saved."""
        entry = saved.entry
        return saved.value is not None or (isinstance(entry, Tensor) and entry.framework == "bytes")

    def build(self, saved: Saved, like: Like, into: Restoring) -> Later:
        """Make the value anew, enums from the live value's classes."""
        if saved.value is None:
            return _long(saved, into)
        into.restored(saved.path)
        value = decode(saved.value.value)
        if not _has_enum(value):
            return lambda: value
        classes = dict(_enums(like()))
        missing = sorted(
            {stored.class_name for stored in _stored_enums(value) if stored.class_name not in classes}
        )
        if missing and not into.free:
            names = ", ".join(missing)
            return into.problem(
                saved.path, f"is a member of {names}, and the state has no value of that class there"
            )
        value = _with_members(value, classes)
        return lambda: value


def _encodable(value: Any) -> bool:
    parts = (value.start, value.stop, value.step) if isinstance(value, slice) else value
    return all(is_plain(part) or isinstance(part, enum.Enum) for part in parts)


def _nested(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return [*value, *value.values()]
    return value if isinstance(value, list | tuple | set | frozenset) else ()


def _has_enum(value: Any) -> bool:
    return next(_stored_enums(value), None) is not None


def _stored_enums(value: Any) -> Iterator[EnumValue]:
    if isinstance(value, EnumValue):
        yield value
    items = _nested(value)
    if not set(map(type, items)) <= _SCALARS - {EnumValue}:
        for item in items:
            yield from _stored_enums(item)


def _enums(value: Any, depth: int = MAX_DEPTH) -> Iterator[tuple[str, type[enum.Enum]]]:
    if isinstance(value, enum.Enum):
        yield type(value).__qualname__, type(value)
    for item in _nested(value) if depth else ():
        yield from _enums(item, depth - 1)


def _with_members(value: Any, classes: Mapping[str, type[enum.Enum]]) -> Any:
    """The value with stored enums as members of the classes at hand."""
    if isinstance(value, EnumValue):
        kind = classes.get(value.class_name)
        if kind is None:
            return value
        try:
            return kind[value.name] if value.name in kind.__members__ else kind(value.value)
        except ValueError as error:
            raise InvalidManifest(
                f"{kind.__qualname__} has no member {value.name!r}", field="enum"
            ) from error
    if isinstance(value, dict):
        return {_with_members(key, classes): _with_members(item, classes) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return type(value)(_with_members(item, classes) for item in value)
    return value


def _long(saved: Saved, into: Restoring) -> Later:
    entry = saved.entry
    assert isinstance(entry, Tensor), entry
    if entry.dtype != "uint8" or len(entry.shape) != 1:
        raise InvalidManifest(f"{saved.path} is no row of bytes", field="shape", path=saved.path)
    memory = bytearray(entry.shape[0])
    into.read(saved, LongBytes(memory))
    kind = entry.extra.get("type", "bytes")
    if kind == "str":
        return lambda: memory.decode("utf-8", "surrogatepass")
    return lambda: memory if kind == "bytearray" else bytes(memory)


@dataclass(frozen=True, slots=True)
class LongBytes:
    """A long value as an array of bytes; a text's are UTF-8. A bytearray may change, and is not copied here."""

    value: str | bytes | bytearray

    @property
    def framework(self) -> str:
        """None: bytes."""
        return "bytes"

    @property
    def dtype(self) -> str:
        """Bytes."""
        return "uint8"

    @property
    def shape(self) -> tuple[int, ...]:
        """How many bytes."""
        return (len(self._bytes()),)

    @property
    def extra(self) -> Mapping[str, Any]:
        """Which type it has."""
        return {"type": type(self.value).__name__}

    @property
    def extent(self) -> Extent | None:
        """Never tied."""
        return None

    def part(self, span: Span | None = None) -> Bytes:
        """All of it."""
        assert span is None, span
        return LongBytes(self._bytes())

    def make(self, view: View) -> Any:
        """Never called: nothing is tied to it."""
        raise NotImplementedError(view)

    def view(self) -> memoryview | None:
        """The bytes."""
        return memoryview(self._bytes())

    def copy_to(self, into: memoryview) -> None:
        """Copy them out."""
        into[:] = self._bytes()

    def copy_from(self, filled: memoryview) -> None:
        """Copy them in."""
        assert isinstance(self.value, bytearray), type(self.value)
        self.value[:] = filled

    def _bytes(self) -> bytes | bytearray:
        value = self.value
        return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
