"""The group of all verbs: its help is a table here, and a verb's module is loaded when the verb is called."""

from __future__ import annotations

import difflib
import importlib

import click

__all__ = ["VERBS", "VerbGroup"]

VERBS: dict[str, tuple[str, str]] = {
    "ls": ("ls", "List runs, or the checkpoints of one run."),
    "show": ("show", "Show one checkpoint: state, sizes, metrics, configuration, lineage."),
    "diff": ("diff", "Compare two checkpoints leaf by leaf."),
    "verify": ("verify", "Read everything and list each damaged leaf."),
    "fork": ("fork", "Start a new run from a checkpoint, without copying bytes."),
    "save": ("save", "Ask a training that runs for a save, and wait until it is a checkpoint."),
    "prune": ("prune", "Delete the checkpoints that a retention policy does not keep."),
    "undelete": ("undelete", "Bring back a checkpoint that was pruned, while its bytes are there."),
    "tag": ("tag", "Name a checkpoint and keep it; list or remove names."),
    "cp": ("cp", "Copy a run or a checkpoint to another store, verified."),
    "export": (
        "export",
        "Write a checkpoint's tensors to safetensors or torch files, or to a DCP folder.",
    ),
    "import": (
        "import_",
        "Make a checkpoint from safetensors, torch, DCP or Hugging Face files.",
    ),
    "du": ("du", "Show where a store's bytes are, by run: stored, shared, waiting, garbage."),
    "doctor": ("doctor", "Check a store: access, clock, guarantees, bandwidth."),
    "plan": ("plan", "Plan how often to save and what to keep: goodput, lost work, cost."),
    "drill": ("drill", "Prove that a training script survives being stopped."),
}
"""Each verb's module in this package and the first line of its help; a test holds the two together."""


class VerbGroup(click.Group):
    """Knows the verbs' names and summaries, imports a verb only to run it or to show its own help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs, in the order of the table."""
        del ctx
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb's command: ``command`` of its module."""
        del ctx
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"everstep.cli.{VERBS[cmd_name][0]}")
        command = module.command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command named first, or a usage error with the nearest names."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], VERBS, n=3)
            raise click.UsageError(
                f"there is no command {args[0]!r}" + (f"; did you mean {' or '.join(near)}?" if near else ""),
                ctx=ctx,
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table of verbs, from the table alone."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_module, summary) in VERBS.items()])
