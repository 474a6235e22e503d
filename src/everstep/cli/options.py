"""Options that every verb spells alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = ["json_option", "quiet_option", "run_option", "store_option"]

F = TypeVar("F", bound=Callable[..., Any])


def store_option(function: F) -> F:
    """``--store URL``, else EVERSTEP_STORE, else the settings' files."""
    return click.option(
        "--store",
        metavar="URL",
        help="Where the checkpoints are: a directory, az://, s3:// or gs://. Default: EVERSTEP_STORE, settings.",
    )(function)


def run_option(function: F) -> F:
    """``--run RUN``, for verbs that speak of one run."""
    return click.option(
        "--run",
        metavar="RUN",
        help="The run, where the argument names none. Default: EVERSTEP_RUN, settings.",
    )(function)


def json_option(function: F) -> F:
    """``--json``: the function's ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout, errors too.")(
        function
    )


def quiet_option(function: F) -> F:
    """``--quiet``: the function's ``quiet``."""
    return click.option("-q", "--quiet", is_flag=True, help="Show no progress.")(function)
