"""A retention policy's text, read: ``last 3, best 2 by val_loss, every 10000, daily 7, at most 2TB``."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable
from typing import Final

from everstep.errors import UsageError
from everstep.retention.rules import (
    AtMostBytes,
    AtMostMoney,
    KeepBest,
    KeepDaily,
    KeepEvery,
    KeepHourly,
    KeepLast,
    KeepMonthly,
    KeepTagged,
    KeepVerified,
    KeepWeekly,
    KeepWithin,
    Rule,
)
from everstep.units import parse_bytes, parse_seconds

__all__ = ["ALL", "FORMS", "parse_rule", "parse_rules"]

ALL: Final = "all"
"""The word that keeps everything."""

FORMS: Final = {
    "last": "last 3",
    "best": "best 2 by val_loss",
    "every": "every 10000",
    "hourly": "hourly 24",
    "daily": "daily 7",
    "weekly": "weekly 4",
    "monthly": "monthly 12",
    "within": "within 48h",
    "tagged": "tagged",
    "newest": "newest verified",
    "at": "at most 2TB",
    ALL: ALL,
}
"""Each rule's first word, and how the rule is written."""

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s"]+')
_RULE: Final = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^",])*')
_MONEY: Final = re.compile(
    r"(?:\$\s*(\d+(?:\.\d+)?)|(\d+(?:\.\d+)?)\s*(?:\$|usd|dollars?))(?:\s*(?:/|per|a)\s*(?:month|mo))?",
    re.IGNORECASE,
)
_COUNTED: Final[dict[str, Callable[[int], Rule]]] = {
    "last": KeepLast,
    "every": KeepEvery,
    "hourly": KeepHourly,
    "daily": KeepDaily,
    "weekly": KeepWeekly,
    "monthly": KeepMonthly,
}


def parse_rules(text: str) -> tuple[Rule | None, ...]:
    """The rules of a text, which are parted by commas; None stands for ``all``.

    Raises `UsageError` naming the rule that cannot be read, and how it is written.
    """
    if not text.strip():
        return (None,)
    parts, at = [], 0
    while True:
        found = _RULE.match(text, at)
        assert found is not None
        if found.end() < len(text) and text[found.end()] == '"':
            raise UsageError(
                f"a quote is not closed: {text[found.end() :]!r:.60}",
                hint="""write it as 'best 2 by "val loss"'""",
                keep=text,
            )
        parts.append(found[0].strip())
        if found.end() == len(text):
            break
        at = found.end() + 1
    if "" in parts:
        raise UsageError(
            f"{text!r:.80} has a comma with no rule beside it",
            hint='write it as "last 3, daily 7"',
            keep=text,
        )
    return tuple(parse_rule(part) for part in parts)


def parse_rule(text: str) -> Rule | None:
    """One rule; None for ``all``. Raises `UsageError`."""
    words = _TOKEN.findall(text)
    first = words[0].lower()
    if first not in FORMS:
        raise _unknown(text, words)
    rest = words[1:]
    if first in _COUNTED:
        made: Rule | None = _counted(text, first, rest)
    elif first == "best":
        made = _best(text, rest)
    elif first == "within":
        made = _within(text, " ".join(rest).lower())
    elif first == "at":
        made = _at_most(text, rest)
    else:
        made = _word(text, " ".join(words).lower())
    return made


def _counted(text: str, first: str, rest: list[str]) -> Rule:
    if first == "every" and len(rest) == 2 and rest[1].lower() in {"step", "steps"}:
        rest = rest[:1]
    if len(rest) != 1 or (number := _integer(rest[0])) is None:
        raise _wrong(text, first)
    return _COUNTED[first](number)


def _best(text: str, rest: list[str]) -> Rule:
    match rest:
        case [count, by, metric] if by.lower() == "by":
            mode = ""
        case [count, by, metric, mode] if by.lower() == "by":
            mode = mode.lower()
        case _:
            raise _wrong(text, "best")
    if (number := _integer(count)) is None:
        raise _wrong(text, "best")
    named = _unquoted(text, metric)
    match mode:
        case "min" | "max":
            return KeepBest(number, named, mode)
        case "":
            return KeepBest(number, named)
        case _:
            near = _near(mode, ["min", "max"]) or "max"
            raise UsageError(
                f"the rule {text!r:.80} ends in {mode!r}, which is no direction",
                hint=f'write it as "best {number} by {metric} {near}"',
                rule=text,
            )


def _unquoted(text: str, metric: str) -> str:
    if not metric.startswith('"'):
        return metric
    try:
        return str(json.loads(metric))
    except ValueError:
        raise _wrong(text, "best") from None


def _within(text: str, rest: str) -> Rule:
    try:
        return KeepWithin(parse_seconds(rest))
    except ValueError:
        raise _wrong(text, "within", "the units are s, m, h, d and w") from None


def _at_most(text: str, rest: list[str]) -> Rule:
    if len(rest) < 2 or rest[0].lower() != "most":
        raise _wrong(text, "at")
    amount = " ".join(rest[1:])
    if money := _MONEY.fullmatch(amount):
        return AtMostMoney(float(money[1] or money[2]))
    try:
        if amount[-1].isalpha():
            return AtMostBytes(parse_bytes(amount))
    except ValueError:
        pass
    raise _wrong(text, "at", 'bytes as "at most 500GB" or "at most 2TiB", money a month as "at most $50"')


def _word(text: str, said: str) -> Rule | None:
    match said:
        case "all":
            return None
        case "tagged":
            return KeepTagged()
        case "newest verified":
            return KeepVerified()
        case "newest":
            raise UsageError(
                "'newest' is no rule: the newest is always kept",
                hint='leave it out, or write how many as "last 3"',
                rule=text,
            )
        case _:
            raise _wrong(text, said.partition(" ")[0])


def _integer(word: str) -> int | None:
    """A whole number, thousands parted by underscores or not; a sign is left to the rule to refuse."""
    return int(word) if re.fullmatch(r"-?[0-9]{1,18}(?:_[0-9]{3}){0,6}", word) else None


def _wrong(text: str, first: str, more: str = "") -> UsageError:
    hint = f'write it as "{FORMS[first]}"'
    return UsageError(
        f"the rule {text!r:.80} cannot be read", hint=f"{hint}; {more}" if more else hint, rule=text
    )


def _unknown(text: str, words: list[str]) -> UsageError:
    spelt = {word: word for word in FORMS} | {"at": "at most", "atmost": "at most"}
    near = _near(words[0].lower(), list(spelt))
    if near is not None:
        meant = " ".join([spelt[near], *words[1:]])
        said = meant if _reads(meant) else FORMS[spelt[near].partition(" ")[0]]
        hint = f'did you mean "{said}"?'
    else:
        hint = f"the rules are: {', '.join(FORMS.values())}"
    return UsageError(f"there is no rule {text!r:.80}", hint=hint, rule=text)


def _reads(text: str) -> bool:
    try:
        parse_rule(text)
    except UsageError:
        return False
    return True


def _near(asked: str, words: list[str]) -> str | None:
    return next(iter(difflib.get_close_matches(asked, words, n=1, cutoff=0.6)), None)
