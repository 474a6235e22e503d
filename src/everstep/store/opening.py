"""From a URL or a path to a store."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from everstep.errors import UsageError
from everstep.events import Listener, silent
from everstep.store.local import LocalStore
from everstep.store.memory import MemoryStore
from everstep.store.protocol import Store

if TYPE_CHECKING:  # a local store opens without the settings of clouds
    from everstep.config import StoreSettings
    from everstep.store.retry import RetryPolicy

__all__ = ["open_store"]

_CLOUDS = frozenset({"az", "s3", "gs"})
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_CONNECTION_STRING = re.compile(r"(?i)(?:AccountKey|SharedAccessSignature)=")
_FORMS = "a store is ./folder, /folder, file:///folder, memory://name, az://container/prefix, s3:// or gs://bucket/prefix"

_memories: dict[str, MemoryStore] = {}  # memory://name is one store for the whole process: here, or nowhere
_memories_lock = threading.Lock()


def open_store(
    url: str,
    *,
    settings: StoreSettings | None = None,
    listener: Listener = silent,
    policy: RetryPolicy | None = None,
) -> Store:
    """The store at ``url``; requests to a cloud are retried, as ``policy`` says. ``settings`` are by default
    those in force.

    Nothing is made or asked for yet: a cloud is first reached by the first verb. Raises `UsageError` for
    what is no store's address, `UnsuitableStore` for a folder that cannot be one.
    """
    scheme, rest = _parse(url)
    if scheme == "memory":
        with _memories_lock:
            return _memories.setdefault(rest, MemoryStore(rest))
    if scheme == "file":
        return LocalStore(_folder(rest, url))
    return _open_cloud(url, settings, listener, policy)


def _open_cloud(
    url: str, settings: StoreSettings | None, listener: Listener, policy: RetryPolicy | None
) -> Store:
    # imported for clouds only: `ls` of a local store starts without obstore and the settings of three clouds
    from everstep import config  # noqa: PLC0415
    from everstep.store.cloud import open_cloud  # noqa: PLC0415
    from everstep.store.retry import Retry  # noqa: PLC0415

    inner = open_cloud(url, settings or config.settings().stores, listener)
    return Retry(inner, policy, listener=listener)


def _parse(url: str) -> tuple[str, str]:
    """The scheme and what follows it; a plain path has the scheme ``file``. No secret of ``url`` in errors."""
    if not url or "\0" in url:
        raise UsageError("the address of the store is empty or has a NUL in it", hint=_FORMS)
    if _CONNECTION_STRING.search(url):
        raise UsageError(
            "a connection string is no store's address; it is not repeated here, as it holds a key",
            hint="put it into AZURE_STORAGE_CONNECTION_STRING, and name the store az://container/prefix",
        )
    found = _SCHEME.match(url)
    if found is None or url.startswith((".", "/", "~")):
        return "file", url
    scheme = found[1].lower()
    if len(scheme) == 1:
        raise UsageError(
            f"{url!r} begins with a Windows drive; local stores need a POSIX system", hint=_FORMS
        )
    rest = url[found.end() :]
    if not rest.startswith("//"):
        raise UsageError(f"{scheme}: is not followed by //", hint=_FORMS, scheme=scheme)
    rest = rest[2:]
    host = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]
    if scheme == "file":
        if host not in {"", "localhost"}:
            raise UsageError(f"file://{host} names another machine", hint="write file:///folder", host=host)
        return scheme, unquote(rest.removeprefix("localhost"))
    if scheme == "memory" or scheme in _CLOUDS:
        return scheme, rest
    hint = _FORMS
    if scheme in {"http", "https"}:
        hint += "; the endpoint of a cloud is a setting, not the store's address"
    raise UsageError(f"{scheme}://{host} is no store's address", hint=hint, scheme=scheme, host=host)


def _folder(path: str, url: str) -> Path:
    if not path:
        raise UsageError(f"{url!r} names no folder", hint=_FORMS)
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{url!r}: {error}", hint="write the path out") from error
