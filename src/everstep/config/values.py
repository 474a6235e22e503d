"""What makes a setting of a text or of a TOML value; each reader raises ValueError saying what it takes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import field
from typing import TypeVar

from everstep.units import parse_bytes, parse_seconds

__all__ = [
    "Secret",
    "count",
    "flag",
    "number",
    "one_of",
    "part",
    "rhythm",
    "seconds",
    "secret",
    "setting",
    "size",
    "text",
]

_T = TypeVar("_T")


class Secret:
    """A text that is shown nowhere: not by ``repr``, ``str`` or formatting, and it is not pickled."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def reveal(self) -> str:
        """The text itself, for the library that signs requests."""
        return self.text

    def __repr__(self) -> str:
        return "Secret(...)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a secret does not leave its process")


def text(value: object) -> str:
    """A text without control characters."""
    if isinstance(value, str) and value and value.isprintable():
        return value
    raise ValueError("a text without control characters")


def part(value: object) -> str:
    """A word of letters, digits, '-' and '_'."""
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,100}", value):
        return value
    raise ValueError("letters, digits, '-' and '_', at most 100")


def secret(value: object) -> Secret:
    """A text on one line, kept from sight."""
    if isinstance(value, str) and value.strip().isprintable():
        return Secret(value.strip())
    raise ValueError("a text on one line")


def flag(value: object) -> bool:
    """True or false, as a bool or one of the usual words."""
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else ""
    if word in {"1", "true", "yes", "on"}:
        return True
    if word in {"0", "false", "no", "off"}:
        return False
    raise ValueError("true or false")


def count(value: object) -> int:
    """A whole number from 1 on."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value.strip()):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise ValueError("a whole number from 1 on")


def number(value: object) -> int:
    """A whole number from 0 on, as a text."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value.strip()):
        return int(value)
    raise ValueError("a whole number from 0 on")


def size(value: object) -> int:
    """A size in bytes."""
    if isinstance(value, str):
        value = parse_bytes(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise ValueError("a size such as 268435456, 256MiB or 1.5GB")


def seconds(value: object) -> float:
    """A duration in seconds."""
    if isinstance(value, str):
        return parse_seconds(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12:
        return float(value)
    raise ValueError("a duration such as 30s, 10m, 2h or 7d")


def rhythm(value: object) -> float:
    """Seconds between two looks, 0 for never; a number or a duration."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value.strip()):
        value = int(value)
    try:
        return seconds(value)
    except ValueError:
        raise ValueError("seconds or a duration, such as 15, 15s or 1m, and 0 for never") from None


def one_of(*words: str) -> Callable[[object], str]:
    """What reads one of these words."""

    def check(value: object) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise ValueError(" or ".join(words))

    return check


def setting(default: _T, read: Callable[[object], object], *variables: str) -> _T:
    """A field: its default, what makes a value of it, and the variables that set it, the first one first."""
    made: _T = field(default=default, metadata={"read": read, "variables": variables})
    return made
