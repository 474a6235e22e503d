"""A bound on bytes a second, so that a save in the background leaves training its processor."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

__all__ = ["Pacer"]

_NAP_S = 0.05


class Pacer:
    """Lets bytes through at ``bytes_per_s``, infinity without end; used by many threads at once.

    ``clock`` gives seconds, ``sleep`` takes them.
    """

    def __init__(
        self,
        bytes_per_s: float = math.inf,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        if not bytes_per_s > 0:
            raise ValueError(f"{bytes_per_s} bytes a second would never end")
        self._rate = bytes_per_s
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._free = -math.inf
        self._hurried = False

    @property
    def bytes_per_s(self) -> float:
        """The bound as it stands."""
        return math.inf if self._hurried else self._rate

    def take(self, nbytes: int) -> None:
        """Wait until ``nbytes`` more may go; at once after `hurry`."""
        if self._hurried or self._rate == math.inf:
            return
        with self._lock:
            now = self._clock()
            begin = max(now, self._free)
            self._free = begin + nbytes / self._rate
        while not self._hurried and (left := begin - self._clock()) > 0:
            self._sleep(min(left, _NAP_S))

    def hurry(self) -> None:
        """Let everything through from now on, those that wait too: somebody waits for the end."""
        self._hurried = True
