"""A store that goes no faster than it is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from everstep.store.protocol import Body, Listed, Store

__all__ = ["Limit"]

_Answer = TypeVar("_Answer")


class Limit:
    """At most ``bytes_per_s`` bytes a second on average and ``at_once`` requests at a time; None is no limit.

    Bytes are paid for before they move, in the order of asking: an upload that may send 64 MiB a second
    waits a second before the second of two packs of 64 MiB. A list is one request until it is made.
    """

    def __init__(
        self,
        inner: Store,
        *,
        bytes_per_s: float | None = None,
        at_once: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._inner = inner
        self._rate = bytes_per_s
        self._slots = threading.BoundedSemaphore(at_once) if at_once else None
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._free_at = clock()

    @property
    def url(self) -> str:
        """The inner store's."""
        return self._inner.url

    def create(self, key: str, body: Body) -> None:
        """As the inner store's, when its turn comes."""
        self._in_turn(memoryview(body).nbytes, lambda: self._inner.create(key, body))

    def get(self, key: str, limit: int) -> bytes:
        """As the inner store's, when its turn comes; its bytes are paid for afterwards."""
        body = self._in_turn(0, lambda: self._inner.get(key, limit))
        self._pay(len(body))
        return body

    def get_range(self, key: str, start: int, into: memoryview) -> None:
        """As the inner store's, when its turn comes."""
        self._in_turn(len(into), lambda: self._inner.get_range(key, start, into))

    def list(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """As the inner store's."""
        return self._in_turn(0, lambda: self._inner.list(prefix, after))

    def delete(self, key: str) -> None:
        """As the inner store's, when its turn comes."""
        self._in_turn(0, lambda: self._inner.delete(key))

    def _in_turn(self, nbytes: int, ask: Callable[[], _Answer]) -> _Answer:
        if self._slots is None:
            self._pay(nbytes)
            return ask()
        with self._slots:
            self._pay(nbytes)
            return ask()

    def _pay(self, nbytes: int) -> None:
        if not self._rate or not nbytes:
            return
        with self._lock:
            now = self._clock()
            begin = max(now, self._free_at)
            self._free_at = begin + nbytes / self._rate
        if begin > now:
            self._sleep(begin - now)
