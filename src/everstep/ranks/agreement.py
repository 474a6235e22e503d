"""All ranks stop, or save, after the same step, although only one of them was told: without a word in each step."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from everstep.errors import RanksMissing, StoreUnavailable
from everstep.ranks.course import Asked, Course, Hold, Kind
from everstep.ranks.ranks import Ranks
from everstep.ranks.waiting import missing
from everstep.ranks.watcher import Watcher

__all__ = ["Agreement"]

_BACKSTOP_S = 120.0
"""Should the listening thread itself be stuck in a library, beyond all its own deadlines."""


class Agreement:
    """One training loop's part in the agreement of all ranks on a step, from ``done`` to ``until``.

    The loop calls `due` at each boundary. A thread listens meanwhile: it hears the requests of
    other ranks, and it looks at ``notice`` (a signal handler's flag) every 0.2 s, so that a request goes out although
    this rank's loop waits in a collective for one that holds at its boundary. Each thread promises, for its
    rank, the step that is being done; the highest promise is the step of all. A rank that is there early holds; one
    behind goes on. Between requests each rank asks the exchange once in `Ranks.watch_s` seconds.

    The thread ends with `close`, or with the main thread. Everything waits ``patience_s`` at most.
    """

    def __init__(
        self,
        ranks: Ranks,
        *,
        done: int,
        until: int,
        notice: Callable[[], bool] = lambda: False,
        patience_s: float = 600.0,
        watch_s: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._patience_s = patience_s
        self._condition = threading.Condition()
        self._course = Course(done=done, until=until)
        self._failure: BaseException | None = None
        self._closing = threading.Event()
        self._awake = threading.Event()
        self._watcher = Watcher(
            ranks,
            self._course,
            self._condition,
            place=f"everstep.agreement/{ranks.number('agreement')}",
            notice=notice,
            now=now,
            poll_s=ranks.poll_s,
            watch_s=ranks.watch_s if watch_s is None else watch_s,
            patience_s=patience_s,
        )
        self._thread = threading.Thread(target=self._watch, name="everstep-agreement", daemon=False)
        self._thread.start()

    def request(self, kind: Kind, reason: str) -> None:
        """Ask all ranks to save or stop; the first request wins, and a stop follows a save that is being agreed on."""
        self._watcher.want(kind, reason)
        self._awake.set()

    def due(self, done: int, *, step_s: float = 0.0) -> Asked | None:
        """What all ranks do now that ``done`` steps are done, the last in ``step_s`` seconds; None: go on.

        Takes a lock and nothing else while nobody asks for anything. Waits only when this rank must not go on before
        the others said how far they are. Raises `RanksMissing` naming those who did not say it,
        `StoreUnavailable` when the exchange has been out of reach for ``patience_s``.
        """
        with self._condition:
            self._watcher.step_s = step_s
            self._course.arrive(done)
            while True:
                if self._failure is not None:
                    raise self._failure
                asked = self._course.leave()
                if not isinstance(asked, Hold):
                    return asked
                if not self._condition.wait(2 * self._patience_s + _BACKSTOP_S):
                    raise missing((0,), "the agreement on a step", self._patience_s)

    def close(self, error: BaseException | None = None) -> None:
        """End the thread, and tell the others that this rank's steps are done, or that it left with ``error``.

        Best effort: others may have gone and taken the exchange with them.
        """
        if self._closing.is_set():
            return
        self._closing.set()
        self._awake.set()
        self._thread.join()
        with suppress(StoreUnavailable, RanksMissing):
            self._watcher.done("" if error is None else f"{type(error).__name__}: {error}")

    def _watch(self) -> None:
        try:
            while not self._closing.is_set() and threading.main_thread().is_alive():
                nap_s = self._watcher.turn()
                self._awake.wait(nap_s)
                self._awake.clear()
        except BaseException as error:  # noqa: BLE001  # the loop raises it at its boundary
            with self._condition:
                self._failure = error
                self._condition.notify_all()
