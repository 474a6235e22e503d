"""What people and programs read: results on stdout, words and errors on stderr."""

from __future__ import annotations

import datetime as dt
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TextIO

import click
import msgspec

from everstep.errors import EverstepError

__all__ = [
    "SCHEMA_VERSION",
    "bytes_text",
    "colour_is_off",
    "document",
    "fail",
    "jsonable",
    "line",
    "metrics_text",
    "printable",
    "say",
    "table",
    "time_text",
]

SCHEMA_VERSION = 1
"""Raised when a field of any ``--json`` document changes its meaning or goes; new fields do not raise it."""

_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}

_CLOSED_PIPE = 141
"""What a shell shows for a program whose reader went away: 128 + SIGPIPE."""


def colour_is_off() -> bool:
    """Whether the user asked for no colour, on terminals too."""
    from everstep import config

    return config.no_color()


def line(text: str = "") -> None:
    """One line of a result."""
    _write(text, sys.stdout)


def say(text: str) -> None:
    """One line for people, on stderr."""
    _write(text, sys.stderr)


def document(fields: Mapping[str, object]) -> None:
    """The one JSON document of a command, on stdout."""
    body = msgspec.json.encode({"schema_version": SCHEMA_VERSION, **fields})
    _write(msgspec.json.format(body, indent=2).decode(), sys.stdout)


def fail(error: EverstepError, *, as_json: bool) -> int:
    """Tell an error, as words on stderr and, when asked, as the document on stdout; gives its exit code."""
    _write(
        f"{click.style(f'error[{error.code}]:', fg='red', bold=True)} {printable(error.message)}", sys.stderr
    )
    if error.hint:
        _write(f"{click.style('hint:', fg='cyan')} {printable(error.hint)}", sys.stderr)
    if as_json:
        fields = {
            "code": error.code,
            "message": jsonable(error.message),
            "hint": jsonable(error.hint),
            "exit_code": error.exit_code,
            "retryable": error.retryable,
            "fields": jsonable(error.fields),
        }
        document({"error": fields})
    return error.exit_code


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """Aligned columns; those named in ``right`` stand to the right."""
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [
        max(len(heading), *(len(row[at]) for row in cells), 0) if cells else len(heading)
        for at, heading in enumerate(headings)
    ]

    def laid(row: Sequence[str]) -> str:
        return "  ".join(
            cell.rjust(width) if heading in right else cell.ljust(width)
            for cell, width, heading in zip(row, widths, headings, strict=True)
        ).rstrip()

    line(click.style(laid(headings), bold=True))
    for row in cells:
        line(laid(row))


def printable(text: str) -> str:
    """The text with everything that could steer a terminal, or cannot be encoded, written as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def bytes_text(count: int) -> str:
    """A number of bytes in decimal units: ``1.49 GB``."""
    if count < 1000:
        return f"{count} B"
    power = next((power for power in range(1, 6) if count < 999.5 * 1000**power), 6)
    return f"{count / 1000**power:.3g} {('kB', 'MB', 'GB', 'TB', 'PB', 'EB')[power - 1]}"


def time_text(seconds: float) -> str:
    """A time in UTC, to the second."""
    try:
        moment = dt.datetime.fromtimestamp(seconds, tz=dt.UTC)
    except (OverflowError, ValueError, OSError):
        return f"{seconds} s"
    return f"{moment:%Y-%m-%d %H:%M:%S}Z"


def metrics_text(metrics: Mapping[str, object]) -> str:
    """Metrics in one cell: ``loss=0.31 lr=0.001``."""
    return " ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in metrics.items()
    )


def jsonable(value: object) -> object:
    """A plain value as JSON can hold it.

    NaN and the infinities become the strings ``NaN``, ``Infinity`` and ``-Infinity``; what JSON has no form
    for becomes its text. Control characters are left to JSON's own escapes, lone surrogates are escaped.
    """
    plain: object
    match value:
        case None | bool():
            plain = value
        case int():
            plain = value if -(2**63) <= value < 2**64 else str(value)
        case float():
            plain = value if math.isfinite(value) else _NOT_FINITE[str(value)]
        case str():
            plain = value.encode("utf-8", "backslashreplace").decode()
        case Mapping():
            plain = {str(jsonable(str(key))): jsonable(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            plain = [jsonable(item) for item in value]
        case _:
            plain = jsonable(str(value))
    return plain


def _write(text: str, stream: TextIO) -> None:
    try:
        encoding = stream.encoding or "utf-8"
        holdable = text.encode(encoding, "backslashreplace").decode(encoding)
        click.echo(holdable, file=stream, color=False if colour_is_off() else None)
        stream.flush()
    except BrokenPipeError:
        # the interpreter flushes once more at its end: give that somewhere to go
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise click.exceptions.Exit(_CLOSED_PIPE) from None
