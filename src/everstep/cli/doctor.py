"""``everstep doctor``: what this machine and a store can do, tried and measured; what a cloud should do by itself."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from everstep.cli import output, places
from everstep.cli.options import json_option, store_option
from everstep.cli.surroundings import credentials, disk, folder_of, is_cloud, versions
from everstep.errors import EverstepError, UsageError
from everstep.store.probe import Check, Status, probe

if TYPE_CHECKING:
    from everstep.store.protocol import Store

__all__ = ["command"]

_COLOURS = {
    Status.OK: "green",
    Status.ADVICE: "cyan",
    Status.WARNING: "yellow",
    Status.FAILED: "red",
    Status.SKIPPED: "white",
}


@click.command("doctor")
@store_option
@click.option(
    "--probe-mb",
    type=click.IntRange(min=1, max=10_000),
    default=32,
    show_default=True,
    help="How much is written and read to measure bandwidth.",
)
@click.option(
    "--lifecycle",
    is_flag=True,
    help="Only print the rules that the cloud should run over this store, as the document that its tools take.",
)
@click.option(
    "--cool-after",
    "cool_after",
    metavar="AGE",
    help="With --lifecycle: move packs of this age, as in 30d, to a cheaper tier.",
)
@click.option(
    "--tier",
    metavar="NAME",
    help="With --cool-after: which tier, by the cloud's own name. Default: Cool, STANDARD_IA, NEARLINE.",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    store: str | None,
    probe_mb: int,
    lifecycle: bool,
    cool_after: str | None,
    tier: str | None,
    as_json: bool,
) -> None:
    """Check a store: access, clock, guarantees, bandwidth.

    Tries each promise that everstep builds on with small objects under probes/, which it removes again, and for a cloud
    says what the store should do by itself. Without a store it shows versions only. Exits 4 when access is denied, 5
    when the store cannot be reached, 1 when it breaks a promise.
    """
    from everstep.config import settings

    url = store or settings().store
    if lifecycle:
        _lifecycle(places.store_url(store), cool_after, tier, as_json=as_json)
        return
    if cool_after or tier:
        raise UsageError(
            "--cool-after and --tier are for --lifecycle", hint="everstep doctor --lifecycle --cool-after 30d"
        )
    checks = [versions(), *(_examined(url, probe_mb * 10**6) if url else [_no_store()])]
    failed = [check for check in checks if check.status is Status.FAILED]
    if as_json:
        output.document(
            {
                "store": None if url is None else _shown(url),
                "healthy": not failed,
                "checks": [_fields(check) for check in checks],
            }
        )
    else:
        for check in checks:
            _show(check)
    errors = [check.error for check in failed if check.error is not None]
    ctx.exit(errors[0].exit_code if errors else 0)


def _lifecycle(url: str, cool_after: str | None, tier: str | None, *, as_json: bool) -> None:
    """The document on stdout, what to know of it and how to apply it on stderr."""
    from everstep.cli.store_rules import days_of, how_to_apply, rules_for
    from everstep.retention.lifecycle import document

    rules = rules_for(url, cool_after=None if cool_after is None else days_of(cool_after), tier=tier)
    made = document(rules)
    if as_json:
        fields = {
            "document": made,
            "tier": None if rules.tier is None else rules.tier.name,
            "cool_after_days": rules.cool_after_days if rules.tier else None,
            "warnings": rules.warnings,
            "apply": how_to_apply(url),
        }
        output.document({"store": _shown(url), "lifecycle": fields})
        return
    if made is None:
        output.say(
            "there is nothing to set: Azure clears uploads that were never finished after a week by itself"
        )
        output.say("to move old packs to a cheaper tier, add --cool-after 30d")
        return
    output.line(json.dumps(made, indent=2))
    for words in rules.warnings:
        output.say(f"note: {words}")
    output.say(f"apply it with: {how_to_apply(url)}")


def _fields(check: Check) -> dict[str, object]:
    return {
        "name": check.name,
        "status": check.status.value,
        "found": output.jsonable(check.found),
        "hint": output.jsonable(check.hint),
        "code": None if check.error is None else check.error.code,
        "number": check.number,
    }


def _show(check: Check) -> None:
    word = click.style(f"{check.status.value:<8}", fg=_COLOURS[check.status])
    output.line(f"{word} {check.name:<19} {output.printable(check.found)}")
    if check.hint and check.status is not Status.OK:
        output.line(f"{'':<8} {'':<19} {output.printable(check.hint)}")


def _shown(url: str) -> str:
    """The address as far as it was understood; what may hold a secret is not repeated."""
    parts = urlsplit(url) if "://" in url else None
    return url if parts is None else f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _no_store() -> Check:
    return Check(
        name="store",
        status=Status.SKIPPED,
        found="no store is named",
        hint="give --store URL, or set EVERSTEP_STORE",
    )


def _examined(url: str, size: int) -> list[Check]:
    checks: list[Check] = []
    try:
        store = _opened(url)
        folder = folder_of(url)
        checks.extend(disk(folder) if folder is not None else credentials(url))
    except UsageError:
        raise
    except EverstepError as error:
        failed = Check(name="store", status=Status.FAILED, found=error.message, hint=error.hint, error=error)
        return [*checks, failed]
    with _left_as_found(folder):
        checks.extend(
            probe(
                store,
                name=os.urandom(8).hex(),
                size=size,
                clock=time.time,
                monotonic=time.monotonic,
                random_bytes=os.urandom,
            )
        )
    if is_cloud(url) and not any(check.status is Status.FAILED for check in checks):
        from everstep.cli.store_rules import advice

        checks.extend(advice(url, store))
    return checks


def _opened(url: str) -> Store:
    """The store, less patient than in a training: a doctor says what is wrong now."""
    from everstep.events import silent
    from everstep.store.retry import Retry, RetryPolicy

    if is_cloud(url):
        from everstep.config import settings
        from everstep.store.cloud import open_cloud

        return Retry(
            open_cloud(url, settings().stores, silent), RetryPolicy(tries=3, first_s=0.2, longest_s=2.0)
        )
    return places.store_at(url)


@contextlib.contextmanager
def _left_as_found(folder: Path | None) -> Iterator[None]:
    """Folders that only the probe needed are removed again."""
    from everstep.store.keys import RESERVED

    new = folder is not None and not folder.exists()
    try:
        yield
    finally:
        if folder is not None and new:
            for empty in (folder / RESERVED, folder):
                with contextlib.suppress(OSError):
                    empty.rmdir()
