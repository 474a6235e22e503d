"""Objects in this process's memory: for tests, examples and trying things out."""

from __future__ import annotations

import bisect
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from everstep.errors import AlreadyExists, InvalidManifest, ObjectNotFound, ShortRead
from everstep.store.keys import check_key, check_prefix
from everstep.store.protocol import Body, Listed

__all__ = ["MemoryStore"]

_PAGE = 1_000


class MemoryStore:
    """A store that lives as long as the process does."""

    def __init__(self, name: str = "", *, clock: Callable[[], float] = time.time) -> None:
        self._name = name
        self._clock = clock
        self._lock = threading.Lock()
        self._objects: dict[str, tuple[bytes, float]] = {}
        self._keys: list[str] = []

    @property
    def url(self) -> str:
        """``memory://`` and the name."""
        return f"memory://{self._name}"

    def create(self, key: str, body: Body) -> None:
        """Copy ``body`` in, if the key is free."""
        check_key(key)
        kept = bytes(body)
        with self._lock:
            if key in self._objects:
                raise AlreadyExists(f"{key} exists in {self.url}", key=key, store=self.url)
            self._objects[key] = (kept, self._clock())
            bisect.insort(self._keys, key)

    def get(self, key: str, limit: int) -> bytes:
        """The whole object, if it has at most ``limit`` bytes."""
        body = self._find(key)
        if len(body) > limit:
            raise InvalidManifest(
                f"{key} in {self.url} has {len(body)} bytes, more than the {limit} allowed",
                key=key,
                store=self.url,
                size=len(body),
                limit=limit,
            )
        return body

    def get_range(self, key: str, start: int, into: memoryview) -> None:
        """Copy the object's bytes from ``start`` on into ``into``."""
        part = memoryview(self._find(key))[start : start + len(into)]
        if len(part) != len(into):
            raise ShortRead(
                f"{key} in {self.url} has {len(part)} bytes from {start} on, {len(into)} were asked for",
                key=key,
                store=self.url,
                start=start,
                asked=len(into),
                got=len(part),
            )
        into[:] = part

    def list(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """Every object under ``prefix`` beyond ``after``, sorted."""
        check_prefix(prefix)
        return self._pages(prefix, after)

    def delete(self, key: str) -> None:
        """Make the key absent."""
        check_key(key)
        with self._lock:
            if self._objects.pop(key, None) is not None:
                del self._keys[bisect.bisect_left(self._keys, key)]

    def _find(self, key: str) -> bytes:
        check_key(key)
        with self._lock:
            found = self._objects.get(key)
        if found is None:
            raise ObjectNotFound(f"no {key} in {self.url}", key=key, store=self.url)
        return found[0]

    def _pages(self, prefix: str, after: str) -> Iterator[Listed]:
        while page := self._page(prefix, after):
            yield from page
            after = page[-1].key

    def _page(self, prefix: str, after: str) -> Sequence[Listed]:
        page = deque[Listed]()
        with self._lock:
            begin = max(bisect.bisect_left(self._keys, prefix), bisect.bisect_right(self._keys, after))
            for at in range(begin, min(begin + _PAGE, len(self._keys))):
                key = self._keys[at]
                if not key.startswith(prefix):
                    break
                body, modified = self._objects[key]
                page.append(Listed(key=key, size=len(body), modified=modified))
        return page
