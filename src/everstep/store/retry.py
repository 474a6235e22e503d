"""A store that asks again when an error may pass."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from everstep.errors import EverstepError, ShortRead
from everstep.events import Listener, Retried, silent
from everstep.store.protocol import Body, Listed, Store

__all__ = ["TRAINING", "Retry", "RetryPolicy"]

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how patiently.

    Before try n + 1 the wait is drawn evenly from 0 to ``min(longest_s, first_s * 2 ** (n - 1))`` seconds, and
    at least a tenth of that ("full jitter": a thousand ranks that were throttled together come back apart).
    ``short_reads`` tries bound a range that stays short: an object that was cut does not grow.
    """

    tries: int = 10
    first_s: float = 0.2
    longest_s: float = 20.0
    short_reads: int = 3

    def wait_s(self, failed: int, drawn: float) -> float:
        """Seconds to wait after the ``failed``-th try, for ``drawn`` between 0 and 1."""
        return min(self.longest_s, self.first_s * 2.0 ** (failed - 1)) * (0.1 + 0.9 * drawn)

    def longest_wait_s(self) -> float:
        """The most seconds that all waits of one request take together; about half of it is usual."""
        return sum(self.wait_s(failed, 1.0) for failed in range(1, self.tries))

    def gives_up(self, error: EverstepError, failed: int) -> bool:
        """Whether ``error`` of the ``failed``-th try is the answer."""
        if not error.retryable:
            return True
        return failed >= (min(self.tries, self.short_reads) if isinstance(error, ShortRead) else self.tries)


TRAINING = RetryPolicy(tries=16)
"""Beside a training: about 100 s of waiting, at most 185 s, before a request fails.

A failed save ends the job, and all its machines start anew; one that waits costs nothing while the training
goes on. So a switch that restarts, a DNS server that moves or a minute of throttling must not fail it. People
at a command line are told after about 35 s.
"""


class Retry:
    """Errors that say ``retryable`` are tried again, others are raised at once, and so is the last one.

    A ``create`` whose answer was lost and that is tried again may raise `AlreadyExists` for its own object:
    only the caller can tell, by reading back. ``sleep`` (seconds) and ``drawn`` (0 to 1) are for tests.
    """

    def __init__(
        self,
        inner: Store,
        policy: RetryPolicy | None = None,
        sleep: Callable[[float], None] = time.sleep,
        listener: Listener = silent,
        *,
        drawn: Callable[[], float] = random.random,
    ) -> None:
        self._inner = inner
        self._policy = policy or RetryPolicy()
        self._sleep = sleep
        self._listener = listener
        self._drawn = drawn

    @property
    def url(self) -> str:
        """The inner store's."""
        return self._inner.url

    @property
    def inner(self) -> Store:
        """The store that is asked once: for who asks again later in any case."""
        return self._inner

    def create(self, key: str, body: Body) -> None:
        """As the inner store's, tried again."""
        self._until_answered("create", key, lambda: self._inner.create(key, body))

    def get(self, key: str, limit: int) -> bytes:
        """As the inner store's, tried again."""
        return self._until_answered("get", key, lambda: self._inner.get(key, limit))

    def get_range(self, key: str, start: int, into: memoryview) -> None:
        """As the inner store's, tried again; a short answer only a few times."""
        self._until_answered("get_range", key, lambda: self._inner.get_range(key, start, into))

    def list(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """As the inner store's; after an error it goes on behind the last key that was given out."""
        failed = 0
        while True:
            try:
                for listed in self._inner.list(prefix, after):
                    yield listed
                    after, failed = listed.key, 0
            except EverstepError as error:
                failed += 1
                self._wait_or_raise(error, failed, "list", prefix)
            else:
                return

    def delete(self, key: str) -> None:
        """As the inner store's, tried again."""
        self._until_answered("delete", key, lambda: self._inner.delete(key))

    def _until_answered(self, verb: str, key: str, ask: Callable[[], _Answer]) -> _Answer:
        failed = 0
        while True:
            try:
                return ask()
            except EverstepError as error:
                failed += 1
                self._wait_or_raise(error, failed, verb, key)

    def _wait_or_raise(self, error: EverstepError, failed: int, verb: str, key: str) -> None:
        if self._policy.gives_up(error, failed):
            raise error
        wait_s = self._policy.wait_s(failed, self._drawn())
        self._listener(Retried(verb=verb, key=key, error=str(error), wait_s=wait_s))
        self._sleep(wait_s)
