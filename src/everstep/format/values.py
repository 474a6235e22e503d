"""Plain Python values as JSON, and back, exactly.

What JSON holds exactly stands as itself: None, bool, text, integers within +-2**53, finite floats, and a
list as an array. All else is an object with its kind under ``"$"``. Nothing is ever imported by a stored
name, and no code is run: an enum comes back as an `EnumValue`.
"""

from __future__ import annotations

import base64
import enum
import math
import re
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import PosixPath, PurePath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec

from everstep.errors import InvalidManifest
from everstep.format.limits import MAX_DEPTH

__all__ = ["EnumValue", "decode", "encode"]

_EXACT: Final = 2**53
_HEX_INT: Final = re.compile(r"-?[0-9a-f]+")
_FLOAT_BITS: Final = re.compile(r"[0-9a-f]{16}")
_SORTABLE: Final = msgspec.json.Encoder(order="deterministic")
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class EnumValue:
    """A member of an enum whose class is not at hand: the class's qualified name, the member's name and value."""

    class_name: str
    name: str
    value: Any


def encode(value: object) -> Any:
    """The value as JSON-able data.

    Raises `TypeError` for a kind that is not listed in docs/format.md (subclasses of the listed ones
    included), and for nesting deeper than `MAX_DEPTH`, which a value that contains itself has.
    """
    return _encode(value, MAX_DEPTH)


def decode(stored: Any) -> Any:
    """The value that `encode` was given. Raises `InvalidManifest` for what `encode` never makes."""
    try:
        return _decode(stored, MAX_DEPTH)
    except (TypeError, ValueError, ArithmeticError, KeyError, OSError) as error:
        raise InvalidManifest(f"a stored value cannot be read: {error}", field="value") from error


def _encode(value: Any, depth: int) -> Any:
    if depth < 0:
        raise TypeError(f"it is nested more than {MAX_DEPTH} deep, or contains itself")
    if isinstance(value, enum.Enum):
        return {
            "$": "enum",
            "class": type(value).__qualname__,
            "name": value.name or "",
            "value": _encode(value.value, depth - 1),
        }
    write = _WRITERS.get(type(value))
    if write is None:
        kind = type(value)
        raise TypeError(f"a value of type {kind.__module__}.{kind.__qualname__} cannot be stored")
    return write(value, depth)


def _itself(value: Any, _depth: int) -> Any:
    return value


def _int(value: int, _depth: int) -> Any:
    return value if -_EXACT <= value <= _EXACT else {"$": "int", "hex": _hex(value)}


def _hex(value: int) -> str:
    return f"{value:x}"


def _float(value: float, _depth: int) -> Any:
    return value if math.isfinite(value) else {"$": "float", "bits": struct.pack(">d", value).hex()}


def _str(value: str, _depth: int) -> Any:
    try:
        value.encode()
    except UnicodeEncodeError:
        return {"$": "str", "b64": _b64(value.encode("utf-8", "surrogatepass"))}
    return value


def _b64(body: bytes | bytearray) -> str:
    return base64.b64encode(body).decode("ascii")


def _list(value: list[Any], depth: int) -> Any:
    return [_encode(item, depth - 1) for item in value]


def _tuple(value: tuple[Any, ...], depth: int) -> Any:
    return {"$": "tuple", "items": [_encode(item, depth - 1) for item in value]}


def _set(value: set[Any] | frozenset[Any], depth: int) -> Any:
    items = [_encode(item, depth - 1) for item in value]
    return {"$": type(value).__name__, "items": sorted(items, key=_SORTABLE.encode)}


def _dict(value: dict[Any, Any], depth: int) -> Any:
    return {
        "$": "dict",
        "keys": [_encode(key, depth - 1) for key in value],
        "values": [_encode(item, depth - 1) for item in value.values()],
    }


def _datetime(value: datetime, depth: int) -> Any:
    iso = value.replace(tzinfo=None, fold=0).isoformat()
    return {"$": "datetime", "iso": iso, "fold": value.fold, "tz": _zone(value.tzinfo, depth)}


def _time(value: time, depth: int) -> Any:
    iso = value.replace(tzinfo=None, fold=0).isoformat()
    return {"$": "time", "iso": iso, "fold": value.fold, "tz": _zone(value.tzinfo, depth)}


def _zone(zone: tzinfo | None, depth: int) -> Any:
    if type(zone) is ZoneInfo and zone.key is None:
        raise TypeError("a time zone without a key cannot be stored")
    return _encode(zone, depth - 1)


def _timezone(zone: timezone, depth: int) -> Any:
    offset = zone.utcoffset(None)
    name = zone.tzname(None)
    own = name != timezone(offset).tzname(None)
    return {"$": "timezone", "us": offset // _MICROSECOND, "name": _str(name, depth) if own else None}


def _timedelta(value: timedelta, _depth: int) -> Any:
    return {"$": "timedelta", "days": value.days, "seconds": value.seconds, "us": value.microseconds}


def _path(value: PurePath, depth: int) -> Any:
    return {"$": "path", "kind": type(value).__name__, "text": _str(str(value), depth)}


def _range(value: range | slice, depth: int) -> Any:
    parts = (value.start, value.stop, value.step)
    return {"$": type(value).__name__, "parts": [_encode(part, depth - 1) for part in parts]}


def _complex(value: complex, depth: int) -> Any:
    return {"$": "complex", "parts": [_float(value.real, depth), _float(value.imag, depth)]}


def _fraction(value: Fraction, depth: int) -> Any:
    return {"$": "fraction", "parts": [_int(value.numerator, depth), _int(value.denominator, depth)]}


def _enum_value(value: EnumValue, depth: int) -> Any:
    return {
        "$": "enum",
        "class": value.class_name,
        "name": value.name,
        "value": _encode(value.value, depth - 1),
    }


_WRITERS: Final[dict[type, Callable[[Any, int], Any]]] = {
    type(None): _itself,
    bool: _itself,
    int: _int,
    float: _float,
    str: _str,
    complex: _complex,
    bytes: lambda value, _depth: {"$": "bytes", "b64": _b64(value)},
    bytearray: lambda value, _depth: {"$": "bytearray", "b64": _b64(value)},
    list: _list,
    tuple: _tuple,
    set: _set,
    frozenset: _set,
    dict: _dict,
    datetime: _datetime,
    date: lambda value, _depth: {"$": "date", "iso": value.isoformat()},
    time: _time,
    timedelta: _timedelta,
    timezone: _timezone,
    ZoneInfo: lambda value, _depth: {"$": "zoneinfo", "key": value.key},
    PurePosixPath: _path,
    PureWindowsPath: _path,
    PosixPath: _path,
    WindowsPath: _path,
    slice: _range,
    range: _range,
    Decimal: lambda value, _depth: {"$": "decimal", "text": str(value)},
    Fraction: _fraction,
    uuid.UUID: lambda value, _depth: {"$": "uuid", "hex": value.hex},
    type(...): lambda _value, _depth: {"$": "ellipsis"},
    EnumValue: _enum_value,
}


def _decode(stored: Any, depth: int) -> Any:
    if depth < 0:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
    kind = type(stored)
    if kind is list:
        return [_decode(item, depth - 1) for item in stored]
    if kind is not dict:
        if kind is int and not -_EXACT <= stored <= _EXACT:
            raise ValueError(f"{stored:#x} as a bare number")
        return stored
    tag = stored.get("$")
    read = _READERS.get(tag) if type(tag) is str else None
    if read is None:
        raise InvalidManifest(
            f"a stored value has the kind {tag!r:.80}, which this version does not know",
            hint="a newer everstep may read it",
            field="$",
        )
    return read(stored, depth)


def _read_int(stored: dict[str, Any], _depth: int) -> int:
    return int(_text(stored["hex"], _HEX_INT), 16)


def _text(text: object, pattern: re.Pattern[str]) -> str:
    if not isinstance(text, str) or not pattern.fullmatch(text):
        raise ValueError(f"{text!r:.80} is not of the form {pattern.pattern}")
    return text


def _read_float(stored: dict[str, Any], _depth: int) -> float:
    bits = bytes.fromhex(_text(stored["bits"], _FLOAT_BITS))
    return float(struct.unpack(">d", bits)[0])


def _read_bytes(stored: dict[str, Any], _depth: int) -> bytes:
    return base64.b64decode(stored["b64"], validate=True)


def _items(stored: Any, depth: int) -> list[Any]:
    if type(stored) is not list:
        raise ValueError(f"{type(stored).__name__} where a list of items belongs")
    return [_decode(item, depth - 1) for item in stored]


def _read_set(stored: dict[str, Any], depth: int) -> set[Any]:
    items = _items(stored["items"], depth)
    made = set(items)
    if len(made) != len(items):
        raise ValueError("an item twice in a set")
    return made


def _read_dict(stored: dict[str, Any], depth: int) -> dict[Any, Any]:
    keys, values = _items(stored["keys"], depth), _items(stored["values"], depth)
    made = dict(zip(keys, values, strict=True))
    if len(made) != len(keys):
        raise ValueError("a key twice in a dict")
    return made


def _read_zone(stored: Any, depth: int) -> tzinfo | None:
    zone = _decode(stored, depth - 1)
    if zone is not None and not isinstance(zone, tzinfo):
        raise ValueError("a time zone that is none")
    return zone


def _read_datetime(stored: dict[str, Any], depth: int) -> datetime:
    made = datetime.fromisoformat(stored["iso"])
    return made.replace(tzinfo=_read_zone(stored["tz"], depth), fold=stored["fold"])


def _read_time(stored: dict[str, Any], depth: int) -> time:
    made = time.fromisoformat(stored["iso"])
    return made.replace(tzinfo=_read_zone(stored["tz"], depth), fold=stored["fold"])


def _read_timezone(stored: dict[str, Any], depth: int) -> timezone:
    offset = timedelta(microseconds=stored["us"])
    name = _decode(stored["name"], depth - 1)
    return timezone(offset) if name is None else timezone(offset, name)


def _read_path(stored: dict[str, Any], depth: int) -> PurePath:
    text = _decode(stored["text"], depth - 1)
    kinds: dict[str, type[PurePath]] = {
        kind.__name__: kind for kind in (PurePosixPath, PureWindowsPath, PosixPath, WindowsPath)
    }
    kind = kinds[stored["kind"]]
    own = type(PurePath()) is PurePosixPath
    if kind is (WindowsPath if own else PosixPath):  # a path of the other system cannot be opened here
        kind = PureWindowsPath if own else PurePosixPath
    return kind(text)


def _parts(stored: dict[str, Any], count: int, depth: int) -> list[Any]:
    parts = _items(stored["parts"], depth)
    if len(parts) != count:
        raise ValueError(f"{len(parts)} parts where {count} belong")
    return parts


def _read_decimal(stored: dict[str, Any], _depth: int) -> Decimal:
    try:
        return Decimal(stored["text"])
    except InvalidOperation as error:
        raise ValueError(f"{stored['text']!r:.80} is no decimal number") from error


_READERS: Final[dict[str, Callable[[dict[str, Any], int], Any]]] = {
    "int": _read_int,
    "float": _read_float,
    "str": lambda stored, depth: _read_bytes(stored, depth).decode("utf-8", "surrogatepass"),
    "complex": lambda stored, depth: complex(*_parts(stored, 2, depth)),
    "bytes": _read_bytes,
    "bytearray": lambda stored, depth: bytearray(_read_bytes(stored, depth)),
    "tuple": lambda stored, depth: tuple(_items(stored["items"], depth)),
    "set": _read_set,
    "frozenset": lambda stored, depth: frozenset(_read_set(stored, depth)),
    "dict": _read_dict,
    "datetime": _read_datetime,
    "date": lambda stored, _depth: date.fromisoformat(stored["iso"]),
    "time": _read_time,
    "timedelta": lambda stored, _depth: timedelta(stored["days"], stored["seconds"], stored["us"]),
    "timezone": _read_timezone,
    "zoneinfo": lambda stored, _depth: ZoneInfo(stored["key"]),
    "path": _read_path,
    "slice": lambda stored, depth: slice(*_parts(stored, 3, depth)),
    "range": lambda stored, depth: range(*_parts(stored, 3, depth)),
    "decimal": _read_decimal,
    "fraction": lambda stored, depth: Fraction(*_parts(stored, 2, depth)),
    "uuid": lambda stored, _depth: uuid.UUID(hex=stored["hex"]),
    "ellipsis": lambda _stored, _depth: ...,
    "enum": lambda stored, depth: EnumValue(
        str(stored["class"]), str(stored["name"]), _decode(stored["value"], depth - 1)
    ),
}
