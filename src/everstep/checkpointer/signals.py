"""SIGTERM and SIGINT set a flag, and one more signal asks for a save; nothing is saved inside a handler."""

from __future__ import annotations

import os
import signal
import threading
import weakref
from pathlib import Path
from types import FrameType
from typing import Self

__all__ = ["SaveSignal", "StopSignals"]

_WATCHED = (signal.SIGTERM, signal.SIGINT)
_installed: weakref.WeakSet[StopSignals | SaveSignal] = weakref.WeakSet()


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

    def give_back(self, *, forked: bool = False) -> None:
        """Put the former handlers in place again."""
        for number, former in self._former.items():
            signal.signal(number, former)  # type: ignore[arg-type]
        if self._leaving and self._former and not forked:
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


class SaveSignal:
    """A context in which a signal is only counted: ``received`` says how often it came. None: no signal is touched.

    A handler that the program had set itself is called too, and is back afterwards; one that is not Python's
    (`faulthandler.register`) keeps the signal, where that can be seen: on Linux. In a child that was forked meanwhile
    the former handler is back; where that would end the process the signal is ignored instead, because schedulers
    send it to whole groups of processes, and a data-loader worker that ends takes the training with it. Outside the
    main thread it does nothing.
    """

    def __init__(self, number: signal.Signals | None) -> None:
        self.number = number
        self.received = 0
        self._former: object = None

    def __enter__(self) -> Self:
        """Take the signal over."""
        if self.number is not None and threading.current_thread() is threading.main_thread():
            former = signal.getsignal(self.number)
            if former is not None and not (former is signal.SIG_DFL and _caught(self.number)):
                self._former = former
                signal.signal(self.number, self._take)
                _installed.add(self)
        return self

    def __exit__(self, *_exc: object) -> None:
        """Give it back."""
        self.give_back()

    def give_back(self, *, forked: bool = False) -> None:
        """Put the former handler in place again, unless the program has set another one meanwhile."""
        if self.number is None or self._former is None:
            return
        former, self._former = self._former, None
        _installed.discard(self)
        if signal.getsignal(self.number) == self._take:
            deadly = forked and former is signal.SIG_DFL
            signal.signal(self.number, signal.SIG_IGN if deadly else former)  # type: ignore[arg-type]

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.received += 1
        if callable(self._former):
            self._former(number, frame)


def _caught(number: int) -> bool:
    """Whether the process handles the signal in any way, as Linux knows; elsewhere no."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return False
    mask = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(mask, 16) >> (number - 1) & 1)


def _in_forked_child() -> None:
    for signals in list(_installed):
        signals.give_back(forked=True)


os.register_at_fork(after_in_child=_in_forked_child)
