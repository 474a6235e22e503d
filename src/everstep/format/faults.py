"""How a check says what is out of bounds: the place in the object, and the rule."""

from __future__ import annotations

import math
import re
from typing import Final

from everstep.errors import InvalidManifest, InvalidName
from everstep.format.ids import parse_run, parse_save

__all__ = ["Faults"]

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class Faults:
    """Raises `InvalidManifest` for one object, which ``what`` names (its key, or its kind)."""

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def fail(self, field: str, why: str) -> InvalidManifest:
        """The error for a field, given by its place (``entries[3].shape``); the caller raises it."""
        return InvalidManifest(
            f"{self._what}: {field}: {why}",
            hint="the object was not written by everstep, or was changed since; run everstep verify",
            what=self._what,
            field=field,
        )

    def count(self, field: str, value: int, most: int, least: int = 0) -> None:
        """A whole number from ``least`` to ``most``."""
        if not least <= value <= most:
            raise self.fail(field, f"{value} is not between {least} and {most}")

    def time(self, field: str, value: float) -> None:
        """Seconds since 1970: finite and not negative."""
        if not (math.isfinite(value) and value >= 0):
            raise self.fail(field, f"{value} is not a time")

    def digest(self, field: str, value: str) -> None:
        """64 hexadecimal digits."""
        if not _DIGEST.fullmatch(value):
            raise self.fail(field, f"{value!r:.80} is not a digest")

    def run(self, field: str, value: str) -> None:
        """A run's name."""
        try:
            parse_run(value)
        except InvalidName as error:
            raise self.fail(field, error.message) from error

    def save(self, field: str, value: str) -> None:
        """A save's id."""
        try:
            parse_save(value)
        except InvalidName as error:
            raise self.fail(field, error.message) from error
