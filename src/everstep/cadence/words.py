"""Cadences as text.

``500 steps``, ``10m``, ``at 100, 200``, ``before 2026-11-22T18:00:00Z``, ``10m before ...``, ``auto``,
``auto 5% with mtbf 4h and notice 30s``, ``never``; several are joined by ``or``.
"""

from __future__ import annotations

import difflib
import re

from everstep.cadence.anyof import AnyOf
from everstep.cadence.auto import Auto
from everstep.cadence.before import Before
from everstep.cadence.cadence import Cadence
from everstep.cadence.durations import parse_duration, parse_moment, spoken
from everstep.cadence.fixed import At, EverySeconds, EverySteps, Never
from everstep.errors import UsageError
from everstep.units import DURATION

__all__ = ["FORMS", "check_deadline", "parse_words", "refusal"]

FORMS = (
    'write steps (every=500, "500 steps"), a duration ("10m"), "at 100, 200", "before 2026-11-22T18:00:00Z", "auto",'
    ' "auto 5% with mtbf 4h", or several: "1000 steps or 30m"'
)
_OR = re.compile(r"\s+or\s+")
_STEPS = re.compile(r"(?:every\s+)?(\d+)(?:\s*steps?)?")
_DURATION = re.compile(rf"(?:every\s+)?({DURATION})")
_AT = re.compile(r"at\s+(\d+(?:\s*,\s*\d+)*)")
_BEFORE = re.compile(rf"(?:({DURATION})\s+)?before\s+(\S+(?: \d\S+)?)")
_AUTO = re.compile(r"auto(?:\s+(\d+(?:\.\d+)?)\s*%)?(?:\s+with\s+(.+))?")
_SETTING = re.compile(rf"(mtbf|notice|restart|at least)\s+({DURATION})")
_VOCABULARY = (
    "every", "step", "steps", "at", "before", "auto", "never", "or", "with", "and", "mtbf", "notice", "restart",
    "least", "s", "m", "h", "d", "sec", "min", "second", "seconds", "minute", "minutes", "hour", "hours", "day", "days",
)  # fmt: skip
_LONG_PAST_S, _FAR_S = 30 * 86400.0, 10 * 365 * 86400.0


def parse_words(text: str, *, now: float) -> Cadence:
    """The cadence that a text means; ``now`` in seconds since 1970. Raises `UsageError` with the correct form."""
    written = [part.strip() for part in _OR.split(text.strip().lower())]
    if len(written) > 1 and (bare := next((part for part in written if part.isdigit()), "")):
        raise UsageError(
            f"{bare} among several may mean two things",
            hint=f'write "{bare} steps", or "at {bare}"',
            every=text,
        )
    parts = [_part(part, text, now) for part in written]
    return parts[0] if len(parts) == 1 else AnyOf(*parts)


def _part(part: str, text: str, now: float) -> Cadence:
    if part == "never":
        return Never()
    if steps := _STEPS.fullmatch(part):
        return EverySteps(int(steps[1]))
    if duration := _DURATION.fullmatch(part):
        return EverySeconds(parse_duration(duration[1]))
    if at := _AT.fullmatch(part):
        return At(*(int(step) for step in at[1].split(",")))
    if before := _BEFORE.fullmatch(part):
        deadline = before[2].upper()
        check_deadline(parse_moment(deadline), now=now)
        return Before(deadline, lead=before[1])
    if auto := _AUTO.fullmatch(part):
        return _auto(auto[1], auto[2], text)
    raise refusal(text, part)


def _auto(percent: str | None, settings: str | None, text: str) -> Auto:
    said: dict[str, str] = {}
    for setting in re.split(r"\s+and\s+", settings) if settings else ():
        found = _SETTING.fullmatch(setting.strip())
        if found is None:
            raise refusal(text, setting)
        name = found[1].replace(" ", "_")
        if name in said:
            raise UsageError(f"{found[1]} is said twice", hint="say it once", every=text)
        said[name] = found[2]
    return Auto(0.03 if percent is None else float(percent) / 100, **said)


def check_deadline(at: float, *, now: float) -> None:
    """Refuse a deadline that must be a slip of the pen: long past, or years ahead. Raises `UsageError`.

    One that passed in the last 30 days is taken, and never due: a training that is launched again after its deadline
    has the same words, and must be able to go on.
    """
    hint = 'write a moment to come: "before 2026-11-22T18:00:00Z"'
    if at < now - _LONG_PAST_S:
        raise UsageError(f"the deadline was {spoken(now - at)} ago", hint=hint)
    if at > now + _FAR_S:
        raise UsageError(f"the deadline is {spoken(at - now)} ahead", hint=hint)


def refusal(every: object, part: str = "") -> UsageError:
    """The error for what says nothing, with the nearest known word when one was misspelt."""
    known = set(_VOCABULARY)
    meant = [
        f"{word!r} is not known: did you mean {near[0]!r}?"
        for word in re.findall(r"[a-z]+", part)
        if word not in known and (near := difflib.get_close_matches(word, _VOCABULARY, n=1))
    ]
    where = f", at {part!r}" if part and part != every else ""
    return UsageError(
        f"every={every!r} says no steps and no time{where}{'. ' if meant else ''}{' '.join(meant)}",
        hint=FORMS,
        every=repr(every),
    )
