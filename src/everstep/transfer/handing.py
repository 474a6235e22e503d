"""Bytes that one rank of a node fetches and hands to the others through shared memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from everstep.format.digests import digest_of
from everstep.plan.handing import Unit, by_key_of, unit_at
from everstep.store.protocol import Body, Listed, Store
from everstep.transfer.folder import Folder

__all__ = ["Handing", "Patience"]

_FIRST_NAP_S: Final = 0.001
_LONGEST_NAP_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait for another rank, in seconds, and how."""

    seconds: float
    sleep: Callable[[float], None]
    now: Callable[[], float]

    def until(self, done: Callable[[], bool], gone: Callable[[], bool]) -> bool:
        """Whether it was done, before it could not be any more or patience ended."""
        end = self.now() + self.seconds
        nap_s = _FIRST_NAP_S
        while not done():
            if gone():
                return done()  # perhaps just before
            if self.now() >= end:
                return False
            self.sleep(nap_s)
            nap_s = min(_LONGEST_NAP_S, nap_s * 1.5)
        return True


@dataclass(slots=True)
class _Given:
    """A unit on its way to others: ``fd`` of its file while it is written, -1 when there is none."""

    fd: int = -1
    started: bool = False
    starts: set[int] = field(default_factory=set)
    done: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(slots=True)
class _Taken:
    """A unit from another: ``fd`` of its file, -1 before it is there, after its bytes were read, or without one."""

    fd: int = -1
    asked: bool = False
    starts: set[int] = field(default_factory=set)
    done: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class Handing:
    """A store in which ranks of one node read for each other; without a failure nobody notices but the store.

    Ranges in a unit that this rank fetches are read and written to a file for the others; those in a unit that
    it takes are read from there, once. All else goes to the store: what is asked again (bytes that were not
    right), what had no room, and what did not come, because its rank died, left, or was waited for in vain. Whole
    objects (`get`) are read by whoever asks first and kept for the others. ``room_bytes`` bounds what
    this rank has written and others have not taken yet. `close` it.
    """

    def __init__(
        self,
        inner: Store,
        folder: Folder,
        *,
        units: Sequence[Unit] = (),
        room_bytes: int,
        patience: Patience,
    ) -> None:
        self._inner = inner
        self._folder = folder
        self._units = by_key_of(units)
        self._takers = [unit.takers for unit in units]
        self._numbers = {(unit.key, unit.offset): number for number, unit in enumerate(units)}
        self._patience = patience
        self._given = {n: _Given() for n, unit in enumerate(units) if unit.fetcher == folder.rank}
        self._taken = {n: _Taken() for n, unit in enumerate(units) if folder.rank in unit.takers}
        self._lock = threading.Lock()
        self._room = room_bytes
        self._kept = room_bytes // 4
        self._out: dict[int, int] = {}
        self._spoilt: list[int] = []
        self._late: set[int] = set()
        self._stuck = False

    @property
    def url(self) -> str:
        """The inner store's."""
        return self._inner.url

    def create(self, key: str, body: Body) -> None:
        """As the inner store's."""
        self._inner.create(key, body)

    def list(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """As the inner store's."""
        return self._inner.list(prefix, after)

    def delete(self, key: str) -> None:
        """As the inner store's."""
        self._inner.delete(key)

    # --- whole objects

    def get(self, key: str, limit: int) -> bytes:
        """The object, read from the store by one rank of the node; objects never change."""
        name = f"object.{digest_of(key.encode())[:32]}"
        found: list[bytes] = []
        held: list[int] = []

        def settled() -> bool:
            body = self._folder.read(name)
            if body is not None:
                found.append(body)
                return True
            lock = self._folder.lock(f"lock.{name}")
            if lock is not None:
                held.append(lock)
            return lock is not None

        try:
            self._patience.until(settled, lambda: False)
            if held and not found and (body := self._folder.read(name)) is not None:
                found.append(body)
        except OSError:
            found.clear()
        try:
            if found and found[0] and len(found[0]) <= limit:
                return found[0]
            body = self._inner.get(key, limit)
            if held and not found:
                self._keep(name, body)
            return body
        finally:
            for fd in held:
                os.close(fd)

    def _keep(self, name: str, body: bytes) -> None:
        """For the others, best effort; an empty file says that there is no room."""
        with self._lock:
            fits = len(body) <= self._kept
            self._kept -= len(body) if fits else 0
        try:
            self._folder.write(name, body if fits else b"")
        except OSError:
            return  # no space at all: each reads for itself

    # --- ranges

    def get_range(self, key: str, start: int, into: memoryview) -> None:
        """As the inner store's, from the rank that fetches it if that is another."""
        unit = unit_at(self._units, key, start, into.nbytes)
        number = -1 if unit is None else self._numbers[unit.key, unit.offset]
        if unit is not None and number in self._taken and self._take(number, unit, start, into):
            return
        self._inner.get_range(key, start, into)
        if unit is not None and number in self._given:
            self._give(number, unit, start, into)

    def _give(self, number: int, unit: Unit, start: int, body: memoryview) -> None:
        given = self._given[number]
        try:
            with given.lock:
                if not given.started:
                    given.started = True
                    self._begin(number, unit, given)
                if given.fd < 0 or start in given.starts:
                    return
            _write(given.fd, body, start - unit.offset)
            with given.lock:
                given.starts.add(start)
                given.done += body.nbytes
                if given.done == unit.length:
                    self._publish(number, unit, given)
        except OSError:
            self._give_up(number, unit, given)

    def _begin(self, number: int, unit: Unit, given: _Given) -> None:
        """Take room for a unit, when others have taken what came before it; without room they are told so.

        That ends: others take a round after having fetched what this rank needed before it (`arrange`).
        """

        def fits() -> bool:
            with self._lock:
                if unit.length > self._room:
                    self._reap()
                if unit.length > self._room:
                    return False
                self._room -= unit.length
                self._out[number] = unit.length
                return True

        if self._patience.until(fits, lambda: self._stuck):
            given.fd = self._folder.create(self._hidden(number))
        else:
            self._stuck = True
            self._refuse(number, unit)

    def _publish(self, number: int, unit: Unit, given: _Given) -> None:
        """Under one name for each taker, so that the memory goes when the last has taken its name away."""
        for rank in unit.takers:
            if self._folder.alive(rank):
                self._folder.link(self._hidden(number), _name(number, rank))
        self._folder.remove(self._hidden(number))
        os.close(given.fd)
        given.fd = -1

    def _give_up(self, number: int, unit: Unit, given: _Given) -> None:
        """No space, or the folder is gone: the others fetch for themselves, at once if they can be told."""
        with given.lock:
            if given.fd >= 0:
                self._spoilt.append(given.fd)  # not closed yet: another thread may write to it
            given.fd = -1
        try:
            self._folder.remove(self._hidden(number))
            self._refuse(number, unit)
        except OSError:
            return  # they find out when this rank leaves

    def _refuse(self, number: int, unit: Unit) -> None:
        for rank in unit.takers:
            self._folder.write(_name(number, rank), b"")

    def _reap(self) -> None:
        """Count what all have taken, or will never take because they are gone, as room again."""
        names = set(self._folder.names())
        for number, length in list(self._out.items()):
            left = [rank for rank in self._takers[number] if _name(number, rank) in names]
            for rank in left:
                if not self._folder.alive(rank):
                    self._folder.remove(_name(number, rank))
            if self._hidden(number) not in names and not any(map(self._folder.alive, left)):
                del self._out[number]
                self._room += length

    def _hidden(self, number: int) -> str:
        return f"new.{self._folder.rank}.{number}"

    def _take(self, number: int, unit: Unit, start: int, into: memoryview) -> bool:
        taken = self._taken[number]
        with taken.lock:
            if start in taken.starts:
                return False  # asked again: what was taken was not right
            taken.starts.add(start)
            if not taken.asked:
                taken.asked = True
                taken.fd = self._arrival(number, unit)
            if taken.fd < 0:
                return False
            whole = _read(taken.fd, into, start - unit.offset)
            taken.done += into.nbytes
            if taken.done >= unit.length or not whole:
                os.close(taken.fd)
                taken.fd = -1
            return whole

    def _arrival(self, number: int, unit: Unit) -> int:
        """The open file of a unit, when it came; its name is taken away at once, so that no memory stays behind."""
        name = _name(number, self._folder.rank)
        found: list[int] = []

        def came() -> bool:
            fd = self._folder.open(name)
            if fd is not None:
                found.append(fd)
            return fd is not None

        def gone() -> bool:
            return unit.fetcher in self._late or not self._folder.alive(unit.fetcher)

        try:
            if not self._patience.until(came, gone):
                self._late.add(unit.fetcher)
                return -1
            self._folder.remove(name)
            if os.fstat(found[0]).st_size == unit.length:
                return found[0]
        except OSError:
            pass  # the folder is gone: as if nothing had come
        for fd in found:
            os.close(fd)
        return -1

    def close(self) -> None:
        """Let all files go, when nobody reads any more."""
        for fd in [*self._spoilt, *(given.fd for given in self._given.values() if given.fd >= 0)]:
            os.close(fd)
        for taken in self._taken.values():
            if taken.fd >= 0:
                os.close(taken.fd)
        self._spoilt.clear()
        self._given.clear()
        self._taken.clear()


def _name(number: int, rank: int) -> str:
    return f"unit.{number}.for.{rank}"


def _write(fd: int, body: memoryview, at: int) -> None:
    done = 0
    while done < body.nbytes:
        done += os.pwrite(fd, body[done:], at + done)


def _read(fd: int, into: memoryview, at: int) -> bool:
    done = 0
    while done < into.nbytes:
        n = os.preadv(fd, [into[done:]], at + done)
        if not n:
            return False
        done += n
    return True
