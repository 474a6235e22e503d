"""A trace: how many machines there were, from when to when."""

from __future__ import annotations

import csv
import datetime as dt
import io
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from everstep.errors import UsageError
from everstep.units import parse_seconds

__all__ = ["Count", "Trace", "parse_trace"]

_FORM = (
    "write a line 'time,machines', then one line for each change: seconds since the start (or a time such as "
    "2026-11-21T10:00:00Z) and how many machines there were from then on, the earliest first"
)
_TIMES = {
    "time": 1.0,
    "seconds": 1.0,
    "time_s": 1.0,
    "timestamp": 1.0,
    "hours": 3600.0,
    "milliseconds": 0.001,
}
_COUNTS = ("machines", "count", "instances")
_MOST_MACHINES = 1_000_000
_LONGEST_S = 100 * 365 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """From ``at`` on, in seconds since the trace began, there were so many machines."""

    at: float
    machines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Changes of a number of machines, in the order in which they came, until ``ends_s``."""

    name: str
    counts: tuple[Count, ...]
    ends_s: float

    @property
    def most(self) -> int:
        """The most machines that there ever were."""
        return max(one.machines for one in self.counts)

    @property
    def resolution_s(self) -> float:
        """How exact its times are: all are multiples of this, to the millisecond."""
        return math.gcd(*(round(one.at * 1000) for one in self.counts)) / 1000

    @property
    def losses(self) -> int:
        """How many machines were lost, all together, but for the end of the trace."""
        return sum(max(0, a.machines - b.machines) for a, b in pairwise(self.counts) if b.at < self.ends_s)

    @property
    def machine_s(self) -> float:
        """The seconds that all machines together were there."""
        ends = [*(one.at for one in self.counts[1:]), self.ends_s]
        return sum(one.machines * (end - one.at) for one, end in zip(self.counts, ends, strict=True))

    @property
    def mtbf_s(self) -> float:
        """The mean life of one machine; infinite when none was lost."""
        return self.machine_s / self.losses if self.losses else math.inf


def parse_trace(text: str, *, name: str, heading: str = "") -> Trace:
    """A trace from CSV text: a heading, then ``time,machines`` rows, the earliest first.

    The first column is seconds (``time``, ``seconds``), ``hours`` or ``milliseconds`` since any start, or times of
    ISO 8601; the second is ``machines`` (``count``, ``instances``). Several changes may have one time. Where nine of
    ten rows are equally far apart, or a comment says ``# every 60s``, the trace was sampled; a hole of more than three
    samples is a gap then. ``heading`` stands for the first line where a file has none.

    Raises `UsageError` naming the line and the form: unknown columns, times that go back or are negative, numbers that
    are none, gaps, and a trace in which nothing is told.
    """
    told = _rows(f"{heading}\n{text}" if heading else text, name)
    if not told:
        raise UsageError(f"the trace {name} is empty", hint=_FORM, trace=name)
    columns = [cell.lower() for cell in told[0][1]]
    unit, at_time, at_count = _columns(columns, name)
    found: list[tuple[str, Count]] = []
    for line, row in told[1:]:
        where = f"the trace {name}, line {line - bool(heading)}"
        if len(row) != len(columns):
            raise UsageError(
                f"{where}: {len(row)} columns where the heading has {len(columns)}", hint=_FORM, trace=name
            )
        count = Count(at=_time(row[at_time], unit, where), machines=_count(row[at_count], where))
        if found and count.at < found[-1][1].at:
            raise UsageError(f"{where}: its time is before that of the line above", hint=_FORM, trace=name)
        found.append((where, count))
    _without_gaps(found, _said_sample(text, name) or _sample([one.at for _, one in found]))
    return _whole([one for _, one in found], name)


def _rows(text: str, name: str) -> list[tuple[int, list[str]]]:
    """Each line that is neither empty nor a comment, with its number."""
    rows = csv.reader(io.StringIO(text))
    try:
        read = [(rows.line_num, [cell.strip() for cell in row]) for row in rows]
    except csv.Error as error:
        raise UsageError(f"the trace {name} is not CSV: {error}", hint=_FORM, trace=name) from None
    return [(line, row) for line, row in read if any(row) and not row[0].startswith("#")]


def _columns(heading: list[str], name: str) -> tuple[float, int, int]:
    """What a time is multiplied by to be seconds, and where time and count stand."""
    times = [at for at, column in enumerate(heading) if column in _TIMES]
    counts = [at for at, column in enumerate(heading) if column in _COUNTS]
    if len(times) != 1 or len(counts) != 1 or len(heading) != 2:
        unknown = [column for column in heading if column not in _TIMES and column not in _COUNTS]
        what = f"unknown column {unknown[0]!r}" if unknown else f"columns {','.join(heading)}"
        raise UsageError(f"the trace {name}: {what}", hint=_FORM, trace=name)
    return _TIMES[heading[times[0]]], times[0], counts[0]


def _time(cell: str, unit: float, where: str) -> float:
    try:
        seconds = float(cell) * unit
    except ValueError:
        seconds = _moment(cell.strip(), where)
    if not math.isfinite(seconds):
        raise UsageError(f"{where}: {cell!r} is no time", hint=_FORM)
    if seconds < 0:
        raise UsageError(f"{where}: the time {cell.strip()} is negative", hint=_FORM)
    return seconds


def _moment(cell: str, where: str) -> float:
    try:
        moment = dt.datetime.fromisoformat(cell)
    except ValueError:
        raise UsageError(f"{where}: {cell!r} is no time", hint=_FORM) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp()


def _count(cell: str, where: str) -> int:
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if not (0 <= number <= _MOST_MACHINES and number.is_integer()):
        raise UsageError(f"{where}: {cell.strip()!r} is no number of machines", hint=_FORM)
    return int(number)


def _without_gaps(found: list[tuple[str, Count]], sample: float | None) -> None:
    """Refuse a hole in a trace that was sampled."""
    for (_, before), (where, now) in pairwise(found):
        if sample and now.at - before.at > 3 * sample:
            raise UsageError(
                f"{where}: a gap of {now.at - before.at:.0f} s, where the trace was sampled every {sample:g} s",
                hint="cut the trace at its gaps and plan with one of the pieces; " + _FORM,
            )


def _sample(times: list[float]) -> float | None:
    """How far apart the rows of a trace are that was sampled; None for one that tells changes."""
    steps = Counter(b - a for a, b in pairwise(times))
    if len(times) < 20:
        return None
    step, often = steps.most_common(1)[0]
    return step if step > 0 and often >= 0.9 * steps.total() else None


def _said_sample(text: str, name: str) -> float | None:
    """How often the trace was sampled, if a comment says so."""
    for line in _comments(text.splitlines()):
        if line.startswith("every "):
            try:
                return parse_seconds(line.removeprefix("every "))
            except ValueError as error:
                raise UsageError(
                    f"the trace {name}: '# {line}' says no sampling", hint=f"write # every, then {error}"
                ) from None
    return None


def _comments(lines: list[str]) -> Iterator[str]:
    return (line.lstrip()[1:].strip().lower() for line in lines if line.lstrip().startswith("#"))


def _whole(counts: list[Count], name: str) -> Trace:
    if len(counts) < 2 or counts[-1].at == counts[0].at:
        raise UsageError(f"the trace {name} has no two rows at different times", hint=_FORM, trace=name)
    if counts[-1].at - counts[0].at > _LONGEST_S:
        raise UsageError(f"the trace {name} is longer than a hundred years", hint=_FORM, trace=name)
    if not any(one.machines for one in counts):
        raise UsageError(f"the trace {name} never has a machine", hint=_FORM, trace=name)
    begin = counts[0].at
    moved = tuple(Count(at=one.at - begin, machines=one.machines) for one in counts)
    return Trace(name=name, counts=moved, ends_s=moved[-1].at)
