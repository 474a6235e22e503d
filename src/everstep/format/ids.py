"""Names of runs and saves, parsed at the edge."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NewType

from everstep.errors import InvalidName

__all__ = ["RunId", "SaveId", "TagId", "parse_run", "parse_save", "parse_tag"]

RunId = NewType("RunId", str)
TagId = NewType("TagId", str)

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9_-])?")
_SAVE = re.compile(r"s(\d{16})-a(\d{8})-([0-9a-f]{32})")
_RESERVED = frozenset(
    {"con", "prn", "aux", "nul"} | {f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10)}
)


def parse_run(text: str) -> RunId:
    """A run's name: 1 to 128 letters, digits, ``.``, ``_`` and ``-``.

    It begins with a letter or digit and does not end with a dot. ASCII only, so that
    no two names differ by Unicode form alone. Raises `InvalidName`.
    """
    return RunId(_parse_name("run", text))


def parse_tag(text: str) -> TagId:
    """A tag's name, under the rules of a run's. Raises `InvalidName`."""
    return TagId(_parse_name("tag", text))


def _parse_name(what: str, text: str) -> str:
    if _NAME.fullmatch(text) and ".." not in text and text.split(".", maxsplit=1)[0].lower() not in _RESERVED:
        return text
    raise InvalidName(
        f"{text!r} cannot be the name of a {what}",
        hint="use 1 to 128 of the letters a-z A-Z, digits, '.', '_' and '-', beginning with a letter or digit",
        what=what,
        name=text,
    )


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SaveId:
    """One save: its step, the attempt that made it and 128 random bits (32 hexadecimal digits)."""

    step: int
    attempt: int
    nonce: str

    def __post_init__(self) -> None:
        """Refuse what cannot be written in a key."""
        if not 0 <= self.step < 10**16:
            raise InvalidName(f"step {self.step} is not between 0 and 10**16 - 1", step=self.step)
        if not 0 <= self.attempt < 10**8:
            raise InvalidName(f"attempt {self.attempt} is not between 0 and 10**8 - 1", attempt=self.attempt)

    def __str__(self) -> str:
        """The text used in keys: ``s<step>-a<attempt>-<nonce>``, digits padded with zeros."""
        return f"s{self.step:016d}-a{self.attempt:08d}-{self.nonce}"


def parse_save(text: str) -> SaveId:
    """The inverse of ``str(SaveId)``. Raises `InvalidName`."""
    match = _SAVE.fullmatch(text)
    if match is None:
        raise InvalidName(f"{text!r} is not the name of a save", name=text)
    return SaveId(step=int(match[1]), attempt=int(match[2]), nonce=match[3])
