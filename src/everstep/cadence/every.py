"""What users pass as ``every=``, in all its forms."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta

from everstep.cadence.anyof import AnyOf
from everstep.cadence.auto import Auto
from everstep.cadence.before import Before
from everstep.cadence.cadence import Cadence
from everstep.cadence.durations import checked_duration
from everstep.cadence.fixed import At, EverySeconds, EverySteps, Never
from everstep.cadence.words import FORMS, check_deadline, parse_words, refusal
from everstep.errors import UsageError

__all__ = ["Every", "parse_every"]

Every = int | str | timedelta | Cadence | Sequence[int | str | timedelta | Cadence] | None
"""Steps, a text, a duration, an object of this room, several of them in a list, or None."""

_OBJECTS = (At, AnyOf, Auto, Before, EverySeconds, EverySteps, Never)


def parse_every(every: Every, *, now: float | None = None) -> Cadence:
    """A cadence from what a user writes: ``500``, ``"500 steps"``, ``"10m"``, a timedelta, None, and so on.

    Texts are those of `words`; a list or tuple means any of its members. What a cadence's ``text()`` gives is read
    as the same cadence. ``now``, by which a deadline is judged, is in seconds since 1970
    (default: this machine's clock; for a text from a record, when that was made). Raises `UsageError` naming
    the form.
    """
    try:
        return _parsed(every, time.time() if now is None else now)
    except UsageError as error:
        if error.hint == FORMS:
            raise
        message = f"every={every!r}: {error.message}"
        raise UsageError(message, hint=f"{error.hint}; all forms: {FORMS}", every=repr(every)) from None


def _parsed(every: Every, now: float) -> Cadence:
    if every is None:
        return Never()
    if isinstance(every, _OBJECTS):
        for member in every.members if isinstance(every, AnyOf) else (every,):
            if isinstance(member, Before):
                check_deadline(member.at, now=now)
        return every
    if isinstance(every, str):
        return parse_words(every, now=now)
    if isinstance(every, timedelta):
        return EverySeconds(checked_duration(every, what=f"every={every!r}"))
    if isinstance(every, int) and not isinstance(every, bool):
        return EverySteps(every)
    if isinstance(every, list | tuple) and every:
        if any(member is None for member in every):
            raise UsageError("every= has None among others, which says nothing", hint="leave it out")
        members = [_parsed(member, now) for member in every]
        return members[0] if len(members) == 1 else AnyOf(*members)
    raise refusal(every)
