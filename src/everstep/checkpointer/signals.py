"""SIGTERM and SIGINT set a flag; nothing is saved inside a handler."""

from __future__ import annotations

import os
import signal
import threading
import weakref
from types import FrameType
from typing import Self

__all__ = ["StopSignals"]

_WATCHED = (signal.SIGTERM, signal.SIGINT)
_installed: weakref.WeakSet[StopSignals] = weakref.WeakSet()


class StopSignals:
    """A context in which the stop signals only set ``received``.

    A second SIGINT raises KeyboardInterrupt, so that a person can always leave. A handler that the
    program had set itself is called too. In a child that was forked meanwhile (a data-loader worker)
    the former handlers are back, so that it can be terminated. Outside the main thread, where Python
    allows no handlers, it does nothing.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._former: dict[signal.Signals, object] = {}
        self._leaving = False

    def __enter__(self) -> Self:
        """Take the signals over."""
        if threading.current_thread() is threading.main_thread():
            self._former = {number: signal.signal(number, self._take) for number in _WATCHED}
            _installed.add(self)
        return self

    def __exit__(self, *_exc: object) -> None:
        """Give them back."""
        self.give_back()

    def leave(self) -> None:
        """The process is about to exit with its own code: from the end of this context SIGTERM is ignored."""
        self._leaving = True

    def give_back(self) -> None:
        """Put the former handlers in place again."""
        for number, former in self._former.items():
            signal.signal(number, former)  # type: ignore[arg-type]
        if self._leaving and self._former:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._former = {}
        _installed.discard(self)

    def _take(self, number: int, frame: FrameType | None) -> None:
        again = self.received is signal.SIGINT and number == signal.SIGINT
        self.received = signal.Signals(number)
        former = self._former.get(self.received)
        if again:
            raise KeyboardInterrupt
        if callable(former) and former is not signal.default_int_handler:
            former(number, frame)


def _in_forked_child() -> None:
    for signals in list(_installed):
        signals.give_back()


os.register_at_fork(after_in_child=_in_forked_child)
