"""Azure Blob storage, S3 and Google Cloud Storage: five verbs, each one request (lists: one per page)."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import obstore
from obstore.store import AzureStore, GCSStore, S3Store

from everstep.config import StoreSettings, settings
from everstep.errors import InvalidManifest, ObjectNotFound, ShortRead, UnsuitableStore, UsageError
from everstep.events import Listener
from everstep.store.azure import azure_target
from everstep.store.cloud_errors import NOWHERE, is_ours, translate
from everstep.store.forked import enter_cloud
from everstep.store.gcs import gcs_target
from everstep.store.keys import check_key, check_prefix
from everstep.store.protocol import Body, Listed
from everstep.store.s3 import s3_target
from everstep.store.target import Target

__all__ = ["CloudStore", "open_cloud"]

_Answer = TypeVar("_Answer")
_Client = AzureStore | GCSStore | S3Store
_PAGE = 1000
_PIECE = 256 * 2**10
"""Bytes of a range copied at a time: larger costs memory, smaller costs calls."""
_QUIET_S = 60
"""How long a connection may say nothing while it is read, and the least an upload may take."""
_DAY_S = 86_400


def open_cloud(url: str, chosen: StoreSettings | None, listener: Listener) -> CloudStore:
    """The store at ``az://``, ``s3://`` or ``gs://``; no request is made yet.

    ``chosen`` None: the settings in force. Raises `UsageError`, `UnsuitableStore`, `NotYetSupported`.
    """
    del listener  # all that happens to requests is told by the Retry around this store
    stores = chosen or settings().stores
    scheme = url.partition("://")[0].lower()
    if scheme == "az":
        target = azure_target(url, stores.azure)
    elif scheme == "s3":
        target = s3_target(url, stores.s3)
    elif scheme == "gs":
        target = gcs_target(url, stores.gcs)
    else:
        raise UsageError(f"{scheme}:// is no cloud's scheme", hint="az://, s3:// or gs://")
    return CloudStore(target, slowest=stores.slowest, proxied=bool(stores.proxies))


class CloudStore:
    """The five verbs over obstore. Nothing is retried here: every failure is seen once, by the caller.

    An upload that is slower than ``slowest`` bytes per second counts as stalled. ``proxied``: an HTTP proxy
    of the environment is used for hosts that are not loopback.

    Redirects: the library would follow one to any host. So hosts other than the endpoint are given a proxy
    that cannot exist, wherever no other host is needed for signing in and no real proxy is set.
    """

    def __init__(self, target: Target, *, slowest: int = 256 * 2**10, proxied: bool = False) -> None:
        self._target = target
        self._slowest = slowest
        self._guarded = target.fixed and (target.endpoint.loopback or not proxied)
        self._clients: dict[tuple[int, int], _Client] = {}
        self._lock = threading.Lock()
        _ = self._reader  # wrong settings show here, not at the first request

    def __repr__(self) -> str:
        return f"CloudStore({self.url!r})"

    @property
    def url(self) -> str:
        """``az://container/prefix`` and the like, as it was given."""
        return self._target.url

    def create(self, key: str, body: Body) -> None:
        """One conditional PUT whatever the size, straight from ``body``'s memory."""
        check_key(key)
        view = memoryview(body).cast("B")
        # the library's read time-out counts while a body is sent, so uploads are bounded by size instead
        patience_s = _QUIET_S
        while patience_s < _QUIET_S + view.nbytes / self._slowest:
            patience_s *= 2
        client = self._client(patience_s, patience_s)
        self._ask("create", key, lambda: obstore.put(client, key, view, mode="create", use_multipart=False))

    def get(self, key: str, limit: int) -> bytes:
        """One GET; the size is looked at before the body is read."""
        check_key(key)
        return self._ask("get", key, lambda: self._get(key, limit))

    def get_range(self, key: str, start: int, into: memoryview) -> None:
        """One ranged GET, copied once as it comes."""
        check_key(key)
        if into.nbytes == 0:
            self._check_end(key, start)
            return
        found = self._ask("get_range", key, lambda: self._fill(key, start, into))
        if found != into.nbytes:
            raise _short(key, self.url, into.nbytes, found)

    def list(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """Pages of 1,000, asked for as they are needed, from the place where ``prefix`` and ``after`` begin."""
        check_prefix(prefix)
        given: set[str] = set()
        last = after
        for page in self._pages(prefix, max(after, _just_before(prefix))):
            for listed in page:
                if not listed.key.startswith(prefix) or listed.key <= after or listed.key in given:
                    continue
                if listed.key < last:
                    raise UnsuitableStore(
                        f"{self.url} does not list in the order of keys: {listed.key!r} after {last!r}",
                        hint="use a storage account without a hierarchical namespace",
                        url=self.url,
                    )
                given.add(listed.key)
                last = listed.key
                yield listed
            if page and page[-1].key > prefix and not page[-1].key.startswith(prefix):
                return  # behind the prefix

    def delete(self, key: str) -> None:
        """One request; an absent key is as it should be."""
        check_key(key)
        with suppress(ObjectNotFound):
            self._ask("delete", key, lambda: obstore.delete(self._reader, key))

    def _get(self, key: str, limit: int) -> bytes:
        answer = obstore.get(self._reader, key)
        size = answer.meta["size"]
        if size > limit:
            raise InvalidManifest(
                f"{key!r} in {self.url} has {size} bytes, the most is {limit}",
                hint="this is not what everstep writes there",
                key=key,
                size=size,
                limit=limit,
            )
        body = answer.bytes().to_bytes()
        if len(body) != size:
            raise _short(key, self.url, size, len(body))
        return body

    def _fill(self, key: str, start: int, into: memoryview) -> int:
        """How many bytes came, those that fit copied piece by piece: the whole range is never held twice."""
        at = 0
        answer = obstore.get(self._reader, key, options={"range": (start, start + into.nbytes)})
        for piece in answer.stream(min_chunk_size=_PIECE):
            end = at + len(piece)
            if end > into.nbytes:
                return end
            into[at:end] = memoryview(piece)
            at = end
        return at

    def _pages(self, prefix: str, offset: str) -> Iterator[Sequence[Listed]]:
        folder = prefix.rpartition("/")[0] or None  # the library lists whole folders only
        stream = self._ask(
            "list",
            prefix,
            lambda: obstore.list(self._reader, folder, offset=offset or None, chunk_size=_PAGE),
        )
        if not self._target.sorted_lists:
            yield _listed(self._ask("list", prefix, stream.collect))
            return
        while (page := self._ask("list", prefix, lambda: next(stream, None))) is not None:
            yield _listed(page)

    def _check_end(self, key: str, start: int) -> None:
        """An empty range is within the object, as any other; the library refuses to ask for one."""
        size = self._ask("get_range", key, lambda: obstore.head(self._reader, key)["size"])
        if start > size:
            raise _short(key, self.url, start, size)

    def _ask(self, verb: str, key: str, request: Callable[[], _Answer]) -> _Answer:
        """Every request goes through here: refused in a forked child, its errors put into our words."""
        enter_cloud(self.url)
        try:
            return request()
        except BaseException as error:
            if not is_ours(error):
                raise
            told = translate(error, verb, key, self._target)
        raise told  # out here the library's error is not its context: that may hold signed addresses

    @property
    def _reader(self) -> _Client:
        return self._client(_DAY_S, _QUIET_S)

    def _client(self, timeout_s: int, quiet_s: int) -> _Client:
        """The client for requests of this patience, made once; the library shares no connections between."""
        with self._lock:
            found = self._clients.get((timeout_s, quiet_s))
            if found is None:
                found = self._clients[timeout_s, quiet_s] = self._make(timeout_s, quiet_s)
            return found

    def _make(self, timeout_s: int, quiet_s: int) -> _Client:
        target = self._target
        options: dict[str, object] = {
            "allow_http": not target.endpoint.encrypted,
            "connect_timeout": dt.timedelta(seconds=10),
            "timeout": dt.timedelta(seconds=timeout_s),
            "read_timeout": dt.timedelta(seconds=quiet_s),
            **target.client,
        }
        if self._guarded:
            options |= {"proxy_url": NOWHERE, "proxy_excludes": _host_rule(target)}
        keywords: dict[str, Any] = {
            "prefix": target.place.prefix or None,
            "config": target.config,
            "client_options": options,
            "retry_config": {"max_retries": 0},
        }
        if target.provider is not None:
            keywords["credential_provider"] = target.provider
        kinds: Mapping[str, type[_Client]] = {"azure": AzureStore, "s3": S3Store, "gcs": GCSStore}
        try:
            return kinds[target.kind](target.place.container, **keywords)
        except Exception as error:
            if not is_ours(error):
                raise
            raise UsageError(
                f"{target.url} cannot be opened: its credentials or endpoint are not in the form they must have",
                hint=f"look at {target.credentials}",
                url=target.url,
            ) from None


def _host_rule(target: Target) -> str:
    host = target.endpoint.host
    bucket = f"{target.place.container}.{host}"
    return f"{host},{bucket}" if ":" not in host else host


def _listed(page: Any) -> Sequence[Listed]:
    found = [
        Listed(key=one["path"], size=one["size"], modified=one["last_modified"].timestamp()) for one in page
    ]
    return sorted(found, key=lambda one: one.key)


def _just_before(prefix: str) -> str:
    """A text that is smaller than every key that starts with ``prefix``, and greater than most others."""
    return prefix[:-1] + chr(ord(prefix[-1]) - 1) + "~" if prefix and not prefix.endswith("/") else ""


def _short(key: str, url: str, expected: int, found: int) -> ShortRead:
    return ShortRead(
        f"{key!r} in {url}: {found} bytes came instead of {expected}",
        hint="it is tried again",
        key=key,
        url=url,
        expected=expected,
        found=found,
    )
