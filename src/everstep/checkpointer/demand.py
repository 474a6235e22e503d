"""Saves on demand: rank 0 looks for requests in the store, and on any rank a signal asks."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Self

from everstep.checkpointer.signals import SaveSignal
from everstep.errors import EverstepError
from everstep.format.ids import SaveId
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.repository import Repository
from everstep.repository.requests import answer, owner_of, waiting
from everstep.store.protocol import Store
from everstep.store.retry import Retry

__all__ = ["Demand"]

_FIRST_S = 1.0
_TICK_S = 0.2
"""How soon the thread sees that the loop, or the main thread, has ended."""
_LONGEST = 100
"""Characters of the name of the one who asked."""


class Demand:
    """What one rank's loop knows of saves that people ask for. A context: signal and thread end with it.

    The loop asks `wanted` at each boundary, which costs two comparisons. Every save, whatever its reason, serves what
    was asked for before it: the saver calls `began` before it copies the state, and `served` once the checkpoint is
    committed. What is asked for meanwhile waits for the next save. A process that dies between commit and answer
    leaves the request to the next launch, which saves once more.

    ``watched`` is where requests are looked for (None on ranks other than the first): every ``watch_s`` seconds, 0 for
    never, and the first time after ``first_s`` at the latest; one list each. ``number`` is the signal, None for none.
    Errors of the store never reach the training: the first one of a row is told to ``trouble``, in another thread.
    ``busy`` says whether a save is under way.
    """

    def __init__(
        self,
        run: str,
        *,
        watched: Repository | None,
        watch_s: float,
        number: signal.Signals | None,
        busy: Callable[[], bool],
        trouble: Callable[[Exception], None],
        first_s: float = _FIRST_S,
    ) -> None:
        self._run = run
        self._repository = None if watched is None else replace(watched, store=_impatient(watched))
        self._watch_s = watch_s
        self._first_s = first_s
        self._signal = SaveSignal(number)
        self._busy = busy
        self._trouble = trouble
        self._lock = threading.Lock()
        self._why = ""
        self._waiting: frozenset[str] = frozenset()
        self._taken: frozenset[str] = frozenset()
        self._owed: dict[str, SaveId] = {}
        self._answered: set[str] = set()
        self._signals_taken = 0
        self._told = False
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._signal.__enter__()
        self._signals_taken = self._signal.received
        self._waiting = self._taken = frozenset()
        if self._repository is not None and self._watch_s > 0:
            self._closing = threading.Event()
            arguments = (self._repository, self._closing)
            self._thread = threading.Thread(
                target=self._watch, args=arguments, name="everstep-requests", daemon=False
            )
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the thread; one that still waits for the store's answer ends with that, and is not waited for."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(_TICK_S)
            self._thread = None
        if self._owed and self._repository is not None:
            self._heard(self._answer_owed, self._repository)
        self._signal.__exit__(kind, error, trace)

    def wanted(self) -> str:
        """Who or what asks for a save now, for people; empty when nobody does, or while a save is under way."""
        if not self._waiting and self._signal.received == self._signals_taken:
            return ""
        if self._busy():
            return ""
        with self._lock:
            if self._waiting:
                return self._why
        return self._signal.number.name if self._signal.number else ""

    def began(self) -> None:
        """A save is about to copy the state: it serves what was asked for until now."""
        self._signals_taken = self._signal.received
        with self._lock:
            self._taken, self._waiting = self._waiting, frozenset()

    def served(self, checkpoint: Checkpoint) -> None:
        """The save that began last is a checkpoint, and durable: tell those who asked. Never raises the store's errors.

        An answer that cannot be written is tried again with the next look.
        """
        with self._lock:
            self._owed |= dict.fromkeys(self._taken, checkpoint.save)
            self._taken = frozenset()
        if self._owed and self._repository is not None:
            self._heard(self._answer_owed, self._repository)

    def _watch(self, repository: Repository, closing: threading.Event) -> None:
        left_s = min(self._first_s, self._watch_s)
        while threading.main_thread().is_alive():
            if closing.wait(min(left_s, _TICK_S)):
                return
            left_s -= _TICK_S
            if left_s <= 0:
                self._heard(self._look, repository)
                left_s = self._watch_s

    def _look(self, repository: Repository) -> None:
        """One list, and one object more when somebody new is the first to wait."""
        with self._lock:
            before = set(self._answered)
        found = waiting(repository, self._run)
        with self._lock:
            self._answered -= before.difference(found)
            first = next((one for one in found if self._is_open(one)), None)
            why = self._why if first in self._waiting else ""
        if first is not None and not why:
            why = f"asked by {_owner(repository, self._run, first)}"
        with self._lock:
            self._waiting = frozenset(filter(self._is_open, found))
            self._why = why
        self._answer_owed(repository)

    def _is_open(self, request: str) -> bool:
        """Whether nothing has been done for a request that a list has shown, which may be older than an answer."""
        return not (request in self._taken or request in self._owed or request in self._answered)

    def _answer_owed(self, repository: Repository) -> None:
        for request, save in list(self._owed.items()):
            answer(repository, self._run, request, save)
            with self._lock:
                self._owed.pop(request, None)
                self._answered.add(request)

    def _heard(self, do: Callable[[Repository], None], repository: Repository) -> None:
        try:
            do(repository)
        except Exception as error:  # noqa: BLE001  # whatever it is, the training goes on
            told, self._told = self._told, True
            if not told:
                self._trouble(error)
        else:
            self._told = False


def _owner(repository: Repository, run: str, request: str) -> str:
    """The name that the one who asked gave; it is shown to people, so nothing in it may steer a terminal."""
    try:
        owner = owner_of(repository, run, request)
    except EverstepError:
        owner = ""
    return "".join(c if c.isprintable() else "?" for c in owner[:_LONGEST]) or "somebody"


def _impatient(repository: Repository) -> Store:
    """The store without its patience: what fails now is tried again with the next look."""
    store = repository.store
    return store.inner if isinstance(store, Retry) else store
