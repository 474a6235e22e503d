"""``everstep prune``: give up the checkpoints that a policy does not keep, and free their bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from everstep.cli import asked, output, places
from everstep.cli.options import json_option, quiet_option, run_option, store_option
from everstep.cli.progress import progress
from everstep.errors import EverstepError

if TYPE_CHECKING:
    from everstep.cli.prune_shown import Shown

__all__ = ["command"]


@click.command("prune")
@click.argument("checkpoints", metavar="[RUN | RUN@STEP]...", nargs=-1)
@store_option
@run_option
@click.option(
    "--keep",
    metavar="POLICY",
    help='What stays, as "last 3, best 2 by val_loss, every 10000".  [default: the run\'s own policy]',
)
@click.option(
    "--grace",
    metavar="DURATION",
    default="24h",
    show_default=True,
    help="How long bytes stay after they were pruned; until then `everstep undelete` brings them back.",
)
@click.option(
    "--check",
    type=click.Choice(["full", "light", "none"]),
    default="full",
    show_default=True,
    help="How the newest checkpoint is looked at first: every byte, every object's size, not at all.",
)
@click.option(
    "--prices", metavar="NAME", help="What the store costs.  [default: the usual tier of its cloud]"
)
@click.option("--repack", is_flag=True, help="Also write anew what holds packs that are mostly dead.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted; change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@quiet_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    checkpoints: tuple[str, ...],
    *,
    store: str | None,
    run: str | None,
    keep: str | None,
    grace: str,
    check: Literal["full", "light", "none"],
    prices: str | None,
    repack: bool,
    dry_run: bool,
    yes: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Delete the checkpoints that a retention policy does not keep.

    RUN goes by --keep, else by the policy of its newest launch. RUN@STEP is given up by name. Without either,
    every run goes by its own policy, and the whole store is swept. What is newest, newest verified, tagged or being
    read is never deleted. With --dry-run nothing is changed.
    """
    from everstep.cli.pricing import prices_for
    from everstep.cli.prune_shown import Shown
    from everstep.cli.pruning import Pruning, wanted
    from everstep.retention import parse_keep

    url = places.store_url(store)
    priced = prices_for(prices, url)
    grace_s = asked.seconds("--grace", grace)
    parse_keep(keep)
    if not dry_run:
        asked.check_can_ask(yes=yes, as_json=as_json)
    with progress(quiet=quiet) as listener:
        repository = places.opened(url, listener=listener)
        work = Pruning(
            repository,
            wanted(repository, checkpoints, places.run_of(None, run), keep),
            grace_s=grace_s,
            price_per_gb_month=None if priced is None else priced.gb_month,
            dry_run=dry_run,
        )
        work.plan(check=check, listener=listener)
    shown = Shown(work, priced, grace=grace, dry_run=dry_run)
    if not as_json:
        shown.plans()
    if dry_run:
        if repack:
            shown.told_of_repack(work.repackable())
    elif yes or asked.agreed(shown.question()):
        with progress(quiet=quiet) as listener:
            work.do(repack=repack, listener=listener)
    else:
        output.say("nothing was deleted")
        ctx.exit(1)
    if as_json:
        output.document(shown.fields())
    else:
        shown.outcome()
    ctx.exit(_told(work.refused, shown))


def _told(refused: dict[str, EverstepError], shown: Shown) -> int:
    """Name the runs of which nothing was pruned, and why; the exit code of the first."""
    for error in refused.values():
        shown.refusal(error)
    return next((error.exit_code for error in refused.values()), 0)
