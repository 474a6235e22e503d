"""What a store lies on, as far as this machine can tell: versions, disk, endpoint and credentials by name."""

from __future__ import annotations

import contextlib
import platform
import shutil
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from everstep.cli import output
from everstep.store.probe import Check, Status

if TYPE_CHECKING:
    from everstep.store.target import Target

__all__ = ["credentials", "disk", "folder_of", "is_cloud", "target_of", "versions"]

_PACKAGES = ("everstep", "numpy", "obstore", "torch", "jax")
_LITTLE_SPACE = 10 * 10**9


def versions() -> Check:
    """Of Python and of the packages that matter."""
    found = [f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"]
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.append(f"{name} {metadata.version(name)}")
    return Check(name="versions", status=Status.OK, found=", ".join(found))


def is_cloud(url: str) -> bool:
    """Whether the address is a cloud's."""
    return url.partition("://")[0].lower() in {"az", "s3", "gs"} and "://" in url


def folder_of(url: str) -> Path | None:
    """The folder of a local store."""
    if url.lower().startswith("file://"):
        return Path(unquote(urlsplit(url).path))
    return None if "://" in url else Path(url).expanduser()


def disk(folder: Path) -> list[Check]:
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


def credentials(url: str) -> list[Check]:
    """Where credentials come from, by name; never what they are."""
    if not is_cloud(url):
        return []
    from everstep.config import settings

    target, stores = target_of(url), settings().stores
    proxies = f"; proxies: {', '.join(stores.proxies)}" if stores.proxies else ""
    return [
        Check(name="credentials", status=Status.OK, found=target.credentials),
        Check(name="endpoint", status=Status.OK, found=f"{target.endpoint.host}{proxies}"),
    ]


def target_of(url: str) -> Target:
    """Where a cloud's store is. Raises `UsageError` and what else its settings are refused for."""
    from everstep.config import settings
    from everstep.store.azure import azure_target
    from everstep.store.gcs import gcs_target
    from everstep.store.s3 import s3_target

    stores = settings().stores
    match url.partition("://")[0].lower():
        case "az":
            return azure_target(url, stores.azure)
        case "s3":
            return s3_target(url, stores.s3)
        case _:
            return gcs_target(url, stores.gcs)
