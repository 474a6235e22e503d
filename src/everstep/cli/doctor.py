"""``everstep doctor``: what this machine and a store can do, tried and measured."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import click

from everstep.cli import output, places
from everstep.cli.options import json_option, store_option
from everstep.errors import EverstepError, UsageError
from everstep.store.probe import Check, Status, probe

if TYPE_CHECKING:
    from everstep.store.protocol import Store

__all__ = ["command"]

_PACKAGES = ("everstep", "numpy", "obstore", "torch", "jax")
_LITTLE_SPACE = 10 * 10**9
_COLOURS = {Status.OK: "green", Status.WARNING: "yellow", Status.FAILED: "red", Status.SKIPPED: "white"}


@click.command("doctor")
@store_option
@click.option(
    "--probe-mb",
    type=click.IntRange(min=1, max=10_000),
    default=32,
    show_default=True,
    help="How much is written and read to measure bandwidth.",
)
@json_option
@click.pass_context
def command(ctx: click.Context, *, store: str | None, probe_mb: int, as_json: bool) -> None:
    """Check a store: access, clock, guarantees, bandwidth.

    Tries each promise that everstep builds on with small objects under probes/, which it removes again.
    Without a store it shows versions only. Exits 4 when access is denied, 5 when the store cannot be
    reached, 1 when it breaks a promise.
    """
    from everstep.config import settings

    url = store or settings().store
    checks = [_versions(), *(_examined(url, probe_mb * 10**6) if url else [_no_store()])]
    failed = [check for check in checks if check.status is Status.FAILED]
    if as_json:
        output.document(
            {
                "store": None if url is None else _shown(url),
                "healthy": not failed,
                "checks": [
                    {
                        "name": check.name,
                        "status": check.status.value,
                        "found": output.jsonable(check.found),
                        "hint": output.jsonable(check.hint),
                        "code": None if check.error is None else check.error.code,
                        "number": check.number,
                    }
                    for check in checks
                ],
            }
        )
    else:
        for check in checks:
            word = click.style(f"{check.status.value:<8}", fg=_COLOURS[check.status])
            output.line(f"{word} {check.name:<19} {output.printable(check.found)}")
            if check.hint and check.status is not Status.OK:
                output.line(f"{'':<8} {'':<19} {output.printable(check.hint)}")
    errors = [check.error for check in failed if check.error is not None]
    ctx.exit(errors[0].exit_code if errors else 0)


def _shown(url: str) -> str:
    """The address as far as it was understood; what may hold a secret is not repeated."""
    parts = urlsplit(url) if "://" in url else None
    return url if parts is None else f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _versions() -> Check:
    found = [f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"]
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.append(f"{name} {metadata.version(name)}")
    return Check(name="versions", status=Status.OK, found=", ".join(found))


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
        folder = _folder(url)
        checks.extend(_disk(folder) if folder is not None else _credentials(url))
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
    return checks


def _opened(url: str) -> Store:
    """The store, less patient than in a training: a doctor says what is wrong now."""
    from everstep.events import silent
    from everstep.store.retry import Retry, RetryPolicy

    if _is_cloud(url):
        from everstep.config import settings
        from everstep.store.cloud import open_cloud

        return Retry(
            open_cloud(url, settings().stores, silent), RetryPolicy(tries=3, first_s=0.2, longest_s=2.0)
        )
    return places.store_at(url)


def _is_cloud(url: str) -> bool:
    return url.partition("://")[0].lower() in {"az", "s3", "gs"} and "://" in url


def _folder(url: str) -> Path | None:
    """The folder of a local store."""
    if url.lower().startswith("file://"):
        return Path(unquote(urlsplit(url).path))
    return None if "://" in url else Path(url).expanduser()


def _disk(folder: Path) -> list[Check]:
    """The file system that the folder lies on, or will lie on, and the space in it."""
    from everstep.store.mounts import mount_of

    standing = folder.resolve()
    while not standing.exists():
        standing = standing.parent
    table = Path("/proc/self/mountinfo")
    mount = mount_of(standing, table.read_text(errors="surrogateescape")) if table.exists() else None
    place = f"{mount.kind} mounted at {mount.point}" if mount else "unknown"
    new = "" if folder.exists() else "; the folder is not there yet"
    free = shutil.disk_usage(standing).free
    little = free < _LITTLE_SPACE
    return [
        Check(name="file system", status=Status.OK, found=f"{place}{new}"),
        Check(
            name="free space",
            status=Status.WARNING if little else Status.OK,
            found=output.bytes_text(free),
            hint="a checkpoint of weights and Adam takes three times the model's size" if little else "",
            number=float(free),
        ),
    ]


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


def _credentials(url: str) -> list[Check]:
    """Where credentials come from, by name; never what they are."""
    if not _is_cloud(url):
        return []
    from everstep.config import settings
    from everstep.store.azure import azure_target
    from everstep.store.gcs import gcs_target
    from everstep.store.s3 import s3_target

    stores = settings().stores
    match url.partition("://")[0].lower():
        case "az":
            target = azure_target(url, stores.azure)
        case "s3":
            target = s3_target(url, stores.s3)
        case _:
            target = gcs_target(url, stores.gcs)
    proxies = f"; proxies: {', '.join(stores.proxies)}" if stores.proxies else ""
    return [
        Check(name="credentials", status=Status.OK, found=target.credentials),
        Check(name="endpoint", status=Status.OK, found=f"{target.endpoint.host}{proxies}"),
    ]
