"""The durations and answers that verbs which delete ask for."""

from __future__ import annotations

import sys

import click

from everstep.errors import UsageError

__all__ = ["agreed", "check_can_ask", "seconds"]


def seconds(option: str, text: str) -> float:
    """A duration, or 0. Raises `UsageError` naming the option and the form."""
    from everstep.units import parse_seconds

    if text.strip() == "0":
        return 0.0
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise UsageError(f"{option} {text!r} is no duration", hint=f"it takes {error}, or 0") from None


def check_can_ask(*, yes: bool, as_json: bool) -> None:
    """Raise `UsageError` when a yes is needed and nobody can be asked for it."""
    if not yes and (as_json or not (sys.stdin.isatty() and sys.stderr.isatty())):
        raise UsageError(
            "nothing is deleted without a yes, and there is no terminal to ask on",
            hint="--yes deletes without asking, --dry-run shows what would be deleted",
        )


def agreed(question: str) -> bool:
    """The user's answer; no is the default."""
    return click.confirm(question, default=False, err=True)
