"""From the shell's words to an exit code: where every error becomes a message."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from everstep.cli import output
from everstep.cli.group import VerbGroup
from everstep.errors import EverstepError, UsageError

__all__ = ["main", "program", "run"]

_INTERRUPTED = 130
_EPILOG = (
    "A checkpoint is named RUN (its newest), RUN@STEP, RUN@latest or tag:NAME. Exit codes: 0 ok, 1 error, "
    "2 usage, 3 not found, 4 access denied, 5 try again, 6 integrity failure, 10 findings (verify, diff), "
    "75 preempted, 130 interrupted."
)


def _version(ctx: click.Context, _param: click.Parameter, asked: bool) -> None:  # noqa: FBT001  click's callback
    if asked:
        from everstep.repository.version import written_by

        click.echo(f"everstep {written_by()}")
        ctx.exit(0)


@click.group(cls=VerbGroup, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, callback=_version, expose_value=False, is_eager=True, help="Show the version."
)
def program() -> None:
    """Checkpoints for training that can be stopped at any instant and goes on bit for bit."""


def run(args: Sequence[str]) -> int:
    """Do what the words ask and give the exit code; no `EverstepError` leaves it."""
    as_json = "--json" in (args[: args.index("--")] if "--" in args else args)
    try:
        try:
            code = program.main(args=list(args), prog_name="everstep", standalone_mode=False)
        except click.Abort:
            output.say("interrupted")
            code = _INTERRUPTED
        except (click.ClickException, EverstepError, OSError) as error:
            code = output.fail(_told(error), as_json=as_json)
    except click.exceptions.Exit as closed:  # a reader went away while an error was being told
        return closed.exit_code
    return code if isinstance(code, int) else 0


def _told(error: click.ClickException | EverstepError | OSError) -> EverstepError:
    """The error as one of ours."""
    if isinstance(error, click.ClickException):
        asked = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "everstep"
        return UsageError(error.format_message(), hint=f"{asked} --help")
    return _file_error(error) if isinstance(error, OSError) else error


def _file_error(error: OSError) -> EverstepError:
    """A file of the user's, beside the stores, that could not be read or written."""
    name = f"{error.filename}: " if error.filename is not None else ""
    return EverstepError(
        f"{name}{error.strerror or error}", hint="check the path, its permissions and the space left"
    )


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))
