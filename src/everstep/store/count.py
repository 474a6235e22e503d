"""A store that counts what it is asked."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, MutableSequence

from everstep.store.protocol import Body, Listed, Store

__all__ = ["Count"]


class Count:
    """Calls by verb in ``calls``, in order in ``log``; bytes stored in ``bytes_in``, bytes read in ``bytes_out``.

    A call is counted when it is made, whether it succeeds or not; bytes are counted when they have moved.
    """

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self.calls: Counter[str] = Counter()
        self.log: MutableSequence[tuple[str, str]] = []
        self.bytes_in = 0
        self.bytes_out = 0

    @property
    def url(self) -> str:
        """The inner store's."""
        return self._inner.url

    def clear(self) -> None:
        """Begin again at nothing."""
        with self._lock:
            self.calls.clear()
            self.log.clear()
            self.bytes_in = self.bytes_out = 0

    def create(self, key: str, body: Body) -> None:
        """As the inner store's, counted."""
        self._called("create", key)
        self._inner.create(key, body)
        self._moved(stored=memoryview(body).nbytes)

    def get(self, key: str, limit: int) -> bytes:
        """As the inner store's, counted."""
        self._called("get", key)
        body = self._inner.get(key, limit)
        self._moved(read=len(body))
        return body

    def get_range(self, key: str, start: int, into: memoryview) -> None:
        """As the inner store's, counted."""
        self._called("get_range", key)
        self._inner.get_range(key, start, into)
        self._moved(read=len(into))

    def list(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """As the inner store's, counted once, however many pages are asked for."""
        self._called("list", prefix)
        return self._inner.list(prefix, after)

    def delete(self, key: str) -> None:
        """As the inner store's, counted."""
        self._called("delete", key)
        self._inner.delete(key)

    def _called(self, verb: str, key: str) -> None:
        with self._lock:
            self.calls[verb] += 1
            self.log.append((verb, key))

    def _moved(self, stored: int = 0, read: int = 0) -> None:
        with self._lock:
            self.bytes_in += stored
            self.bytes_out += read
