"""What a store really does, tried on it under a prefix of its own that is removed again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum

from everstep.errors import AccessDenied, AlreadyExists, ConditionIgnored, EverstepError, StoreError
from everstep.store.protocol import Store

__all__ = ["Check", "Status", "probe"]

_AT_ONCE = 4
_SKEW_S = 60.0
"""More than this between our clock and the store's is worth a word: signed requests fail from 5 to 15 minutes on."""


class Status(StrEnum):
    """How a check came out."""

    OK = "ok"
    ADVICE = "advice"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was tried, what was found, what to do about it, and the error behind a failure."""

    name: str
    status: Status
    found: str
    hint: str = ""
    error: EverstepError | None = None
    number: float | None = None


def probe(
    store: Store,
    *,
    name: str,
    size: int,
    clock: Callable[[], float],
    monotonic: Callable[[], float],
    random_bytes: Callable[[int], bytes],
) -> list[Check]:
    """Try each promise of `Store` with objects under ``probes/<name>/``, and measure with ``size`` bytes.

    The order: write, conditional create, read back, ranges, list after write, the store's clock (against
    ``clock``, seconds since 1970), delete, upload and download (by ``monotonic`` seconds). What depends on
    a check that failed is skipped. ``number`` is the skew in seconds, or bytes per second. Errors of the
    store become failed checks and are not raised.
    """
    probing = _Probe(store, f"probes/{name}/", clock, monotonic, random_bytes)
    checks: list[Check] = []
    try:
        checks.extend(probing.promises())
        if all(check.status is not Status.FAILED for check in checks):
            checks.extend(probing.bandwidth(size))
    finally:
        checks.append(probing.removed())
    return checks


class _Probe:
    def __init__(
        self,
        store: Store,
        prefix: str,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._clock = clock
        self._monotonic = monotonic
        self._random_bytes = random_bytes
        self._made: set[str] = set()
        self._lock = threading.Lock()

    def promises(self) -> Iterator[Check]:
        """The checks up to the first that fails."""
        body = self._random_bytes(1000)
        before = self._clock()
        for check in (self._write, self._condition, self._read, self._range):
            done = check(body)
            yield done
            if done.status is Status.FAILED:
                return
        yield self._list(before)

    def _create(self, name: str, body: bytes) -> None:
        with self._lock:
            self._made.add(f"{self._prefix}{name}")
        self._store.create(f"{self._prefix}{name}", body)

    def _write(self, body: bytes) -> Check:
        try:
            self._create("one", body)
        except EverstepError as error:
            return _failed("write", error)
        return Check(name="write", status=Status.OK, found="an object was written")

    def _condition(self, body: bytes) -> Check:
        try:
            self._store.create(f"{self._prefix}one", bytes(len(body)))
        except AlreadyExists:
            return Check(name="conditional create", status=Status.OK, found="a second create was refused")
        except EverstepError as error:
            return _failed("conditional create", error)
        ignored = ConditionIgnored(
            "the store overwrote an object on create-if-absent: two writers would both believe they won",
            hint="use a store that honours If-None-Match (a gateway or an emulator may drop it)",
        )
        return _failed("conditional create", ignored)

    def _read(self, body: bytes) -> Check:
        try:
            same = self._store.get(f"{self._prefix}one", len(body)) == body
        except EverstepError as error:
            return _failed("read", error)
        if not same:
            return _failed("read", StoreError("other bytes came back than were written"))
        return Check(name="read", status=Status.OK, found="the same bytes came back")

    def _range(self, body: bytes) -> Check:
        into = bytearray(100)
        try:
            self._store.get_range(f"{self._prefix}one", 450, memoryview(into))
        except EverstepError as error:
            return _failed("range read", error)
        if into != body[450:550]:
            return _failed("range read", StoreError("a range came back with other bytes"))
        return Check(name="range read", status=Status.OK, found="a range came back right")

    def _list(self, before: float) -> Check:
        after = self._clock()
        try:
            [found] = list(self._store.list(self._prefix))
        except EverstepError as error:
            return _failed("list", error)
        except ValueError:
            return _failed("list", StoreError("a list right after the write did not show the object once"))
        return _skew(before, after, found.modified)

    def bandwidth(self, size: int) -> Iterator[Check]:
        """Upload and download, several objects at once."""
        part = max(1, size // _AT_ONCE)
        bodies = [self._random_bytes(part) for _ in range(_AT_ONCE)]
        names = [f"part-{number}" for number in range(_AT_ONCE)]
        into = [bytearray(part) for _ in names]
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            try:
                began = self._monotonic()
                list(threads.map(self._create, names, bodies))
                yield _rate("upload", part * _AT_ONCE, self._monotonic() - began)
                began = self._monotonic()
                list(
                    threads.map(
                        lambda name, room: self._store.get_range(
                            f"{self._prefix}{name}", 0, memoryview(room)
                        ),
                        names,
                        into,
                    )
                )
                yield _rate("download", part * _AT_ONCE, self._monotonic() - began)
            except EverstepError as error:
                yield _failed("bandwidth", error)
                return
        if any(room != body for room, body in zip(into, bodies, strict=True)):
            yield _failed("bandwidth", StoreError("other bytes came back than were written"))

    def removed(self) -> Check:
        """Delete all that was made, and look whether it is gone."""
        try:
            for key in sorted(self._made):
                self._store.delete(key)
            left = [found.key for found in self._store.list(self._prefix)]
        except AccessDenied as error:
            return Check(
                name="delete",
                status=Status.WARNING,
                found=f"not permitted: {error.message}",
                hint=f"training needs no delete, prune does; remove {self._prefix} yourself",
                error=error,
            )
        except EverstepError as error:
            return _failed("delete", error)
        if left:
            return _failed("delete", StoreError(f"{len(left)} deleted objects are still listed", keys=left))
        return Check(name="delete", status=Status.OK, found="the probe was removed")


def _failed(name: str, error: EverstepError) -> Check:
    return Check(name=name, status=Status.FAILED, found=error.message, hint=error.hint, error=error)


def _skew(before: float, after: float, modified: float) -> Check:
    """The store's clock against ours; it may have only whole seconds."""
    skew = modified - before if modified < before else max(0.0, modified - after)
    if -1.0 <= skew <= 0:
        skew = 0.0
    found = (
        f"the object is listed; the store's clock is {abs(skew):.1f} s {'behind' if skew < 0 else 'ahead'}"
    )
    if abs(skew) <= _SKEW_S:
        near = "the object is listed; the clocks agree" if skew == 0 else found
        return Check(name="list and clock", status=Status.OK, found=near, number=skew)
    return Check(
        name="list and clock",
        status=Status.WARNING,
        found=found,
        hint="set this machine's clock (NTP): signed requests fail when it is minutes off",
        number=skew,
    )


def _rate(name: str, size: int, seconds: float) -> Check:
    rate = size / seconds if seconds > 0 else 0.0
    found = f"{rate / 1e6:.0f} MB/s ({size / 1e6:.0f} MB in {_AT_ONCE} objects at once)"
    return Check(name=name, status=Status.OK, found=found, number=rate)
