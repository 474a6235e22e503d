"""A bound on the bytes that are in memory at once."""

from __future__ import annotations

import threading

__all__ = ["Budget"]


class Budget:
    """Bytes that tasks take before they begin and give back when they are done with them.

    A task that is alone may take more than there is: nothing would ever be given back for it to wait for.
    """

    def __init__(self, nbytes: int) -> None:
        self._free = nbytes
        self._running = 0
        self._changed = threading.Condition()

    def begin(self, nbytes: int) -> None:
        """Wait until there are ``nbytes``, or until no other task runs; then this one runs."""
        with self._changed:
            self._changed.wait_for(lambda: self._free >= nbytes or not self._running)
            self._free -= nbytes
            self._running += 1

    def give_back(self, nbytes: int) -> None:
        """So many bytes are not in use any more."""
        with self._changed:
            self._free += nbytes
            self._changed.notify_all()

    def end(self) -> None:
        """One task runs no more."""
        with self._changed:
            self._running -= 1
            self._changed.notify_all()
