"""A store that fails on purpose: at chosen calls, or at random from one seed."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

from everstep.errors import AccessDenied, AlreadyExists, EverstepError, ShortRead, StoreFull, StoreUnavailable
from everstep.store.protocol import Body, Listed, Store

__all__ = ["AtRandom", "Crashed", "Fault", "Injection", "Kind", "Script", "Scripted"]

_Answer = TypeVar("_Answer")


class Kind(StrEnum):
    """What goes wrong with one call. What a kind says nothing about for a verb goes through unharmed."""

    BEFORE = "the request was lost: nothing done, StoreUnavailable"
    AFTER = "the answer was lost: done, StoreUnavailable"
    REPEATED = "the request arrived twice: the second answer is given; a list gives its first entry twice"
    LATE = "StoreUnavailable, and a create or delete arrives a few calls later"
    TORN = "half the bytes of a create are stored, or of a get are answered, without a word"
    SHORT = "half the bytes came: ShortRead; a list breaks off with StoreUnavailable after its first entry"
    FLIPPED = "one bit of what a create stores or a read answers is flipped, without a word"
    THROTTLED = "429: nothing done, StoreUnavailable"
    UNAVAILABLE = "503: nothing done, StoreUnavailable"
    CONFLICT = "409: nothing done, StoreUnavailable"
    TAKEN = "412: a create made nothing and says AlreadyExists: the other object went away meanwhile"
    DENIED = "403: nothing done, AccessDenied"
    FULL = "a create finds no space: StoreFull"
    CRASH_BEFORE = "the process dies before the request"
    CRASH_AFTER = "the process dies after the request was done"


class Crashed(BaseException):
    """The process is dead, as far as its store is concerned. Not an `Exception`: nothing may handle it."""


class Script(Protocol):
    """Decides which calls fail. ``str`` of it says how to have the same again."""

    def pick(self, number: int, verb: str, nth: int) -> Kind | None:
        """What goes wrong with the ``number``-th call of all, the ``nth`` of its verb, both from 1."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """One fault: at the ``at``-th call, of one verb or of all."""

    kind: Kind
    at: int
    verb: str = ""


class Scripted:
    """Faults at chosen calls; of two at one call the first counts."""

    def __init__(self, *injections: Injection) -> None:
        self._injections = injections

    def __str__(self) -> str:
        return ", ".join(f"{it.kind.name} at {it.verb or 'call'} {it.at}" for it in self._injections)

    def pick(self, number: int, verb: str, nth: int) -> Kind | None:
        """The kind whose place this call is."""
        for it in self._injections:
            if it.at == (nth if it.verb else number) and it.verb in {"", verb}:
                return it.kind
        return None


class AtRandom:
    """Each call fails with probability ``rate``, in one of ``kinds``; decided by the seed and its number."""

    def __init__(self, seed: int, rate: float, kinds: Sequence[Kind], verbs: Sequence[str] = ()) -> None:
        self._seed = seed
        self._rate = rate
        self._kinds = tuple(kinds)
        self._verbs = frozenset(verbs)

    def __str__(self) -> str:
        return f"seed {self._seed}, rate {self._rate}"

    def pick(self, number: int, verb: str, nth: int) -> Kind | None:  # noqa: ARG002  # as the Protocol has it
        """The same for one seed and number, whatever the threads did."""
        if self._verbs and verb not in self._verbs:
            return None
        dice = random.Random(f"{self._seed}/{number}")  # noqa: S311  # repeatable is the point
        return dice.choice(self._kinds) if dice.random() < self._rate else None


@dataclass(slots=True, kw_only=True)
class _Call:
    number: int
    verb: str
    key: str
    kind: Kind | None
    script: Script

    def __str__(self) -> str:
        return f"{self.verb} {self.key}: injected at call {self.number} ({self.script}): {self.kind}"

    def unavailable(self) -> StoreUnavailable:
        return StoreUnavailable(str(self), key=self.key)


class Fault:
    """The inner store, with the faults of a script. After a crash every call raises `Crashed`.

    ``calls`` is how many were made, ``injected`` how often each kind struck. Requests that are late arrive
    before the ``late_by``-th call after them, or with ``land``.
    """

    def __init__(self, inner: Store, script: Script, *, late_by: int = 3) -> None:
        self._inner = inner
        self._script = script
        self._late_by = late_by
        self._lock = threading.Lock()
        self._by_verb: Counter[str] = Counter()
        self._late: deque[tuple[int, Callable[[], None]]] = deque()
        self.calls = 0
        self.injected: Counter[Kind] = Counter()
        self.crashed = False

    @property
    def url(self) -> str:
        """The inner store's."""
        return self._inner.url

    def land(self) -> None:
        """Let all late requests arrive now."""
        self._land(None)

    def create(self, key: str, body: Body) -> None:
        """As the inner store's, or as the script has it."""
        call = self._begin("create", key)
        if call.kind is Kind.TAKEN:
            raise AlreadyExists(str(call), key=key)
        if call.kind is Kind.FULL:
            raise StoreFull(str(call), key=key)
        view = memoryview(body).cast("B")
        if call.kind is Kind.TORN:
            return self._inner.create(key, view[: len(view) // 2])
        if call.kind is Kind.FLIPPED:
            return self._inner.create(key, _flipped(view, call.number))
        if call.kind is Kind.LATE:
            kept = bytes(view)
            self._postpone(call, lambda: self._inner.create(key, kept))
        return self._answer(call, lambda: self._inner.create(key, body))

    def get(self, key: str, limit: int) -> bytes:
        """As the inner store's, or as the script has it."""
        call = self._begin("get", key)
        body = self._answer(call, lambda: self._inner.get(key, limit))
        if call.kind is Kind.SHORT:
            raise ShortRead(str(call), key=key)
        if call.kind is Kind.TORN:
            return body[: len(body) // 2]
        return _flipped(memoryview(body), call.number) if call.kind is Kind.FLIPPED else body

    def get_range(self, key: str, start: int, into: memoryview) -> None:
        """As the inner store's, or as the script has it."""
        call = self._begin("get_range", key)
        if call.kind is Kind.SHORT:
            self._inner.get_range(key, start, into[: len(into) // 2])
            raise ShortRead(str(call), key=key)
        self._answer(call, lambda: self._inner.get_range(key, start, into))
        if call.kind is Kind.FLIPPED:
            into[:] = _flipped(into, call.number)

    def list(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """As the inner store's, or as the script has it: the call is counted now, and fails as it goes."""
        call = self._begin("list", prefix)
        if call.kind in {Kind.REPEATED, Kind.SHORT, Kind.AFTER, Kind.CRASH_AFTER}:
            return self._listed(call, self._inner.list(prefix, after))
        return self._answer(call, lambda: self._inner.list(prefix, after))

    def delete(self, key: str) -> None:
        """As the inner store's, or as the script has it."""
        call = self._begin("delete", key)
        if call.kind is Kind.LATE:
            self._postpone(call, lambda: self._inner.delete(key))
        self._answer(call, lambda: self._inner.delete(key))

    def _begin(self, verb: str, key: str) -> _Call:
        with self._lock:
            if self.crashed:
                raise Crashed(f"{verb} {key}: the process died before ({self._script})")
            self.calls += 1
            self._by_verb[verb] += 1
            kind = self._script.pick(self.calls, verb, self._by_verb[verb])
            call = _Call(number=self.calls, verb=verb, key=key, kind=kind, script=self._script)
            if kind:
                self.injected[kind] += 1
        self._land(call.number)
        if kind is Kind.CRASH_BEFORE:
            self._crash(call)
        if kind in {Kind.BEFORE, Kind.THROTTLED, Kind.UNAVAILABLE, Kind.CONFLICT}:
            raise call.unavailable()
        if kind is Kind.DENIED:
            raise AccessDenied(str(call), key=key)
        return call

    def _answer(self, call: _Call, ask: Callable[[], _Answer]) -> _Answer:
        if call.kind is Kind.LATE:
            raise call.unavailable()
        if call.kind is Kind.REPEATED:
            with contextlib.suppress(EverstepError):  # the first answer was lost, whatever it was
                ask()
        if call.kind in {Kind.AFTER, Kind.CRASH_AFTER}:
            with contextlib.suppress(EverstepError):  # an error would have been the answer: it is lost too
                ask()
            if call.kind is Kind.CRASH_AFTER:
                self._crash(call)
            raise call.unavailable()
        return ask()

    def _listed(self, call: _Call, entries: Iterator[Listed]) -> Iterator[Listed]:
        for at, entry in enumerate(entries):
            yield entry
            if at == 0 and call.kind is Kind.REPEATED:
                yield entry
            if at == 0 and call.kind is Kind.SHORT:
                raise call.unavailable()
        if call.kind is Kind.AFTER:
            raise call.unavailable()
        if call.kind is Kind.CRASH_AFTER:
            self._crash(call)

    def _crash(self, call: _Call) -> None:
        with self._lock:
            self.crashed = True
        raise Crashed(str(call))

    def _postpone(self, call: _Call, request: Callable[[], None]) -> None:
        with self._lock:
            self._late.append((call.number + self._late_by, request))

    def _land(self, number: int | None) -> None:
        with self._lock:
            due = [request for at, request in self._late if number is None or at <= number]
            self._late = deque(it for it in self._late if number is not None and it[0] > number)
        for request in due:
            with contextlib.suppress(EverstepError):  # nobody is there to hear the answer
                request()


def _flipped(body: memoryview, number: int) -> bytes:
    """A copy with one bit flipped; which one follows from the call's number. Nothing to flip in no bytes."""
    copy = bytearray(body)
    if copy:
        bit = number * 2_654_435_761 % (len(copy) * 8)
        copy[bit // 8] ^= 1 << bit % 8
    return bytes(copy)
