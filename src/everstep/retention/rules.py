"""The rules of a retention policy: each keeps some checkpoints, a budget takes some away again.

A rule prints as the text that is read as that rule. Those that count periods go by UTC.
"""

from __future__ import annotations

import json
import math
import operator
import re
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import ClassVar, Final, SupportsIndex, cast

from everstep.errors import UsageError
from everstep.retention.directions import Direction, known_direction

__all__ = [
    "AtMostBytes",
    "AtMostMoney",
    "Budget",
    "KeepBest",
    "KeepDaily",
    "KeepEvery",
    "KeepHourly",
    "KeepLast",
    "KeepMonthly",
    "KeepTagged",
    "KeepVerified",
    "KeepWeekly",
    "KeepWithin",
    "Rule",
    "quoted",
]

_MOST_CHECKPOINTS: Final = 10**6
_MOST_STEPS: Final = 10**15
_MOST_SECONDS: Final = 100 * 366 * 86400
_MOST_BYTES: Final = 10**21
_MOST_DOLLARS: Final = 10**9
_PLAIN: Final = re.compile(r"[^\s,;\"']+")


@dataclass(frozen=True, slots=True)
class _Counted:
    """A rule that is a word and a number of checkpoints."""

    n: int
    word: ClassVar[str]

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        form = f"{self.word} 3"
        object.__setattr__(self, "n", _whole(self.word, self.n, _MOST_CHECKPOINTS, "checkpoints", form))

    def __str__(self) -> str:
        return f"{self.word} {self.n}"


@dataclass(frozen=True, slots=True)
class KeepLast(_Counted):
    """The ``n`` newest."""

    word: ClassVar[str] = "last"


@dataclass(frozen=True, slots=True)
class KeepHourly(_Counted):
    """The newest of each of the last ``n`` hours that have a checkpoint."""

    word: ClassVar[str] = "hourly"


@dataclass(frozen=True, slots=True)
class KeepDaily(_Counted):
    """The newest of each of the last ``n`` days that have a checkpoint."""

    word: ClassVar[str] = "daily"


@dataclass(frozen=True, slots=True)
class KeepWeekly(_Counted):
    """The newest of each of the last ``n`` weeks that have a checkpoint; a week begins on Monday."""

    word: ClassVar[str] = "weekly"


@dataclass(frozen=True, slots=True)
class KeepMonthly(_Counted):
    """The newest of each of the last ``n`` months that have a checkpoint."""

    word: ClassVar[str] = "monthly"


@dataclass(frozen=True, slots=True)
class KeepEvery:
    """One for each ``steps`` steps: the last at each multiple or before it, of several attempts the newest.

    Where saves fall on the multiples, those are kept. Where the clock or ``every="auto"`` decides when to save,
    few steps are multiples of anything; then those just before stand for them.
    """

    steps: int

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        object.__setattr__(self, "steps", _whole("every", self.steps, _MOST_STEPS, "steps", "every 10000"))

    def __str__(self) -> str:
        return f"every {self.steps}"


@dataclass(frozen=True, slots=True)
class KeepWithin:
    """Those of the last ``seconds`` (or a timedelta) before the newest."""

    seconds: float

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        given = cast("float | timedelta", self.seconds)
        seconds = given.total_seconds() if isinstance(given, timedelta) else given
        object.__setattr__(
            self, "seconds", _amount("within", seconds, _MOST_SECONDS, "seconds", "within 48h")
        )

    def __str__(self) -> str:
        for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
            if self.seconds % length == 0 and (unit != "d" or self.seconds > 2 * length):
                return f"within {int(self.seconds // length)}{unit}"
        return f"within {_number(self.seconds)}s"


@dataclass(frozen=True, slots=True)
class KeepBest:
    """The ``n`` with the lowest (``min``) or highest (``max``) value of a metric.

    Without a ``mode`` it follows from the metric's name, where that tells. Of equal ones the older: a value
    that was measured once stays with the checkpoints that follow. What is no finite number is never best.
    """

    n: int
    metric: str
    mode: Direction | None = None

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing, and find the direction."""
        object.__setattr__(
            self, "n", _whole("best", self.n, _MOST_CHECKPOINTS, "checkpoints", "best 2 by val_loss")
        )
        if not isinstance(self.metric, str) or not self.metric.strip():
            raise UsageError(
                f"the rule 'best {self.n}' names no metric", hint='write it as "best 2 by val_loss"'
            )
        if self.mode not in ("min", "max", None):
            raise UsageError(
                f"the rule 'best {self.n} by {self.metric}' has {self.mode!r} for a direction",
                hint=f'write "best {self.n} by {self.metric} max" or "best {self.n} by {self.metric} min"',
            )
        mode = self.mode or known_direction(self.metric)
        if mode is None:
            said = f"best {self.n} by {quoted(self.metric)}"
            raise UsageError(
                f"the rule '{said}' does not say whether high or low is best, and the metric's name does not tell",
                hint=f'write "{said} max" or "{said} min"',
                rule=said,
                metric=self.metric,
            )
        object.__setattr__(self, "mode", mode)

    def __str__(self) -> str:
        said = f"best {self.n} by {quoted(self.metric)}"
        return said if self.mode == known_direction(self.metric) else f"{said} {self.mode}"


@dataclass(frozen=True, slots=True)
class KeepTagged:
    """Those with a tag. They are always kept: as the only rule it keeps nothing else."""

    def __str__(self) -> str:
        return "tagged"


@dataclass(frozen=True, slots=True)
class KeepVerified:
    """The newest of which all bytes were read and found whole. It is always kept, as the newest is."""

    def __str__(self) -> str:
        return "newest verified"


@dataclass(frozen=True, slots=True)
class AtMostBytes:
    """The oldest go until the store holds at most so many bytes for this run; shared ones count once."""

    bytes: int

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        object.__setattr__(
            self, "bytes", _whole("at most", self.bytes, _MOST_BYTES, "bytes", "at most 500GB")
        )

    def __str__(self) -> str:
        for power in range(6, 0, -1):
            for prefixes, suffix, each in (("kMGTPE", "B", 1000**power), ("KMGTPE", "iB", 1024**power)):
                if self.bytes % each == 0:
                    return f"at most {self.bytes // each}{prefixes[power - 1]}{suffix}"
        return f"at most {self.bytes}B"


@dataclass(frozen=True, slots=True)
class AtMostMoney:
    """The oldest go until what the store holds for this run costs at most so many dollars a month."""

    dollars: float

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        object.__setattr__(
            self, "dollars", _amount("at most", self.dollars, _MOST_DOLLARS, "dollars", "at most $50")
        )

    def __str__(self) -> str:
        return f"at most ${_number(self.dollars)}"


Budget = AtMostBytes | AtMostMoney
Rule = (
    KeepLast
    | KeepEvery
    | KeepHourly
    | KeepDaily
    | KeepWeekly
    | KeepMonthly
    | KeepWithin
    | KeepBest
    | KeepTagged
    | KeepVerified
    | Budget
)


def quoted(metric: str) -> str:
    """A metric's name as a policy's text holds it: in quotes where it is more than one plain word."""
    return metric if _PLAIN.fullmatch(metric) else json.dumps(metric, ensure_ascii=False)


def _whole(word: str, given: object, most: int, what: str, form: str) -> int:
    try:
        number = None if isinstance(given, bool) else operator.index(cast("SupportsIndex", given))
    except TypeError:
        number = None
    if number is None:
        raise _refused(word, given, f"needs a whole number of {what}", form)
    if number < 1:
        raise _refused(
            word,
            number,
            f"keeps nothing: it needs at least 1 of the {what}"
            if word != "at most"
            else f"needs more than 0 {what}",
            form,
        )
    if number > most:
        raise _refused(word, number, f"is more than {most} {what}", form)
    return number


def _amount(word: str, given: object, most: int, what: str, form: str) -> float:
    try:
        number = math.nan if isinstance(given, bool | str) else float(cast("float", given))
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise _refused(word, given, f"needs a number of {what}", form)
    if number <= 0:
        raise _refused(word, given, f"needs more than 0 {what}", form)
    if number > most:
        raise _refused(word, given, f"is more than {most} {what}", form)
    return number


def _refused(word: str, given: object, why: str, form: str) -> UsageError:
    said = f"{word} {given}" if isinstance(given, int | float | str) else f"{word} {given!r}"
    return UsageError(f"the rule {said!r:.80} {why}", hint=f'write it as "{form}"', rule=said)


def _number(value: float) -> str:
    """A number as people write it: no exponent, no needless zeros."""
    text = format(Decimal(repr(float(value))), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
