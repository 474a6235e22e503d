"""Calls into a library that may hang, each with a deadline."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

__all__ = ["TimedCalls"]

_T = TypeVar("_T")
_Call = tuple[Future[object], Callable[[], object]]


class TimedCalls:
    """One thread that makes the calls, one after another, so that who asked can stop waiting.

    A call that hangs inside a library cannot be ended from outside: then the thread is left behind (it does
    not hold up the end of the process), and every later call fails at once.
    """

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._stuck = False
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def run(self, call: Callable[[], _T], timeout_s: float) -> _T:
        """The call's result or error. Raises `TimeoutError` when it does not return in time, or one before did not."""
        if self._stuck or self._closed:
            raise TimeoutError("an earlier call has not returned" if self._stuck else "closed")
        future: Future[object] = Future()
        self._calls.put((future, call))
        try:
            return future.result(timeout_s)  # type: ignore[return-value]
        except TimeoutError:
            if not future.done():
                self._stuck = True
            raise

    def close(self, timeout_s: float) -> None:
        """Let the thread end after the calls that were made."""
        if not self._closed:
            self._closed = True
            self._calls.put(None)
            self._thread.join(0 if self._stuck else timeout_s)

    def _work(self) -> None:
        while (next_call := self._calls.get()) is not None:
            future, call = next_call
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001  # it belongs to the caller, whatever it is
                future.set_exception(error)
            del future, call, next_call
