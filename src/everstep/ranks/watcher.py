"""One rank's listener: hears that a stop or a save is asked for, promises a step, and learns the target."""

from __future__ import annotations

import math
from collections.abc import Callable
from threading import Condition
from typing import Protocol

import msgspec

from everstep.errors import RanksMissing, StoreUnavailable
from everstep.ranks.course import Asked, Course, Kind
from everstep.ranks.waiting import missing
from everstep.ranks.words import decode, encode

__all__ = ["Keys", "Watcher"]

_TICK_S = 0.2
_MARGIN_S = 5.0


class Keys(Protocol):
    """The keys of one launch: `Ranks`."""

    @property
    def rank(self) -> int:
        """This rank."""
        ...

    @property
    def world(self) -> int:
        """How many there are."""
        ...

    def meet(self, timeout_s: float) -> None:
        """Find the others, once."""
        ...

    def put(self, key: str, value: bytes) -> None:
        """The first value of a key wins."""
        ...

    def find(self, key: str) -> bytes | None:
        """The value, or None."""
        ...

    def forget(self, key: str) -> None:
        """Remove a key."""
        ...


class _Request(msgspec.Struct, frozen=True):
    kind: Kind
    rank: int
    reason: str


class _Done(msgspec.Struct, frozen=True):
    until: int
    gone: str = ""


class Watcher:
    """Rounds, numbered from 0: a request, a promise of each rank, a target.

    The first request of a round wins. Rank 0 gathers the promises, and makes the target of them.
    Nothing here waits: `turn` does what can be done now and says how many seconds later it wants to be called again.
    ``lock`` guards ``course``, which the loop uses too. Between rounds a rank asks once in ``watch_s`` seconds;
    within a round it begins with ``poll_s`` and slows down to ``watch_s``. ``notice`` is looked at every 0.2 s.
    """

    def __init__(
        self,
        keys: Keys,
        course: Course,
        lock: Condition,
        *,
        place: str,
        notice: Callable[[], bool],
        now: Callable[[], float],
        poll_s: float,
        watch_s: float,
        patience_s: float,
    ) -> None:
        self._keys, self._course, self._lock, self._place = keys, course, lock, place
        self._notice, self._now = notice, now
        self._poll_s, self._watch_s, self._patience_s = poll_s, watch_s, patience_s
        self._number = 0
        self._wanted: _Request | None = None
        self._open: _Request | None = None
        self._promises: dict[int, int] = {}
        self._promised = False
        self._deadline = self._ask_at = 0.0
        self._nap_s = poll_s
        self._unheard_since: float | None = None
        self._met = False
        self.step_s = 0.0
        self.over = False

    def want(self, kind: Kind, reason: str) -> None:
        """Ask all ranks, at the next turn, unless the same or a stop is being agreed on already."""
        with self._lock:
            known = {one.kind for one in (self._wanted, self._open) if one is not None} | self._course.ahead()
            if not self.over and not known & {kind, Kind.STOP}:
                self._wanted = _Request(kind, self._keys.rank, reason)

    def turn(self) -> float:
        """Do what can be done without waiting; seconds until the next turn.

        What cannot be reached is tried again until ``patience_s`` are over. Raises `RanksMissing`, `StoreUnavailable`.
        """
        if self.over:
            return _TICK_S
        try:
            nap_s = self._turn()
        except StoreUnavailable as error:
            now = self._now()
            since = now if self._unheard_since is None else self._unheard_since
            self._unheard_since = since
            gone = error.fields.get("rank")
            if isinstance(gone, int) and (self._open or self._wanted):
                raise RanksMissing(
                    f"rank {gone} is gone: {error.message}",
                    hint=error.hint,
                    missing=(gone,),
                    topic="agreement",
                ) from error
            if now - since >= self._patience_s:
                raise
            return self._watch_s
        self._unheard_since = None
        return nap_s

    def done(self, gone: str = "") -> None:
        """Say that this rank has done all its steps, or why it will not; what it promises from now on is known."""
        self._keys.meet(self._patience_s)
        said = _Done(self._course.until, gone)
        self._keys.put(f"{self._place}/done/{self._keys.rank}", msgspec.msgpack.encode(said))

    def _turn(self) -> float:
        if not self._met:
            self._keys.meet(self._patience_s)
            self._met = True
        if self._open is None and not self._opened():
            return min(_TICK_S, self._watch_s)
        assert self._open is not None
        target = self._gathered() if self._keys.rank == 0 else self._told()
        if target is None:
            self._nap_s = min(self._nap_s * 1.5, self._watch_s)
            return self._nap_s
        self._close(target, self._open)
        return 0.0

    def _opened(self) -> bool:
        """Whether a round is open now: hear of it, or ask for it; then promise."""
        if self._notice():
            self.want(Kind.STOP, "notice")
        key = self._key("request")
        if self._wanted is not None:
            self._keys.put(key, msgspec.msgpack.encode(self._wanted))
        elif self._now() < self._ask_at:
            return False
        self._ask_at = self._now() + self._watch_s
        text = self._keys.find(key)
        if text is None:
            return False
        request = msgspec.msgpack.decode(text, type=_Request)
        with self._lock:
            promise = self._course.promise(self._lead(request.kind))
            self._open = request
            if self._wanted is not None and (request.kind in {self._wanted.kind, Kind.STOP}):
                self._wanted = None
        self._promises, self._promised = {self._keys.rank: promise}, False
        self._deadline = self._now() + self._patience_s
        self._nap_s = self._poll_s
        return True

    def _lead(self, kind: Kind) -> int:
        """Steps that the others need to hear of it, so that nobody stands still for a save."""
        if kind is Kind.STOP:
            return 0
        return math.ceil(2 * self._watch_s / self.step_s) if self.step_s > 0 else 1

    def _gathered(self) -> int | None:
        """Rank 0: the target, when all promises are there."""
        for rank in range(1, self._keys.world):
            if rank in self._promises:
                continue
            promise = self._promise(rank)
            if promise is None and self._now() < self._deadline:
                return None
            if promise is None:
                absent = tuple(r for r in range(rank, self._keys.world) if self._promise(r) is None)
                if absent:
                    raise self._refuse(missing(absent, f"the agreement on a {self._kind}", self._patience_s))
                return None
            self._promises[rank] = promise
        target = max(self._promises.values())
        self._keys.put(self._key("target"), encode("target", b"%d" % target))
        return target

    def _promise(self, rank: int) -> int | None:
        text = self._keys.find(self._key(f"promise/{rank}"))
        return int(text) if text is not None else self._until(rank)

    def _until(self, rank: int) -> int | None:
        """What a rank that has left its loop promises: all its steps. Raises `RanksMissing` if it left before."""
        text = self._keys.find(f"{self._place}/done/{rank}")
        if text is None:
            return None
        done = msgspec.msgpack.decode(text, type=_Done)
        if done.gone:
            error = RanksMissing(
                f"rank {rank} has left the training: {done.gone}",
                hint="its log has the whole error",
                missing=(rank,),
                topic="agreement",
            )
            raise self._refuse(error)
        return done.until

    def _refuse(self, error: RanksMissing) -> RanksMissing:
        if self._keys.rank == 0:
            self._keys.put(self._key("target"), encode("target", error))
        return error

    def _told(self) -> int | None:
        """Another rank: give the promise, and look for the target."""
        if not self._promised:
            mine = self._promises[self._keys.rank]
            self._keys.put(self._key(f"promise/{self._keys.rank}"), b"%d" % mine)
            self._promised = True
        text = self._keys.find(self._key("target"))
        if text is None and (until := self._until(0)) is not None:
            text = self._keys.find(
                self._key("target")
            )  # what rank 0 said before it had done all its steps counts
            if text is None:
                return until
        if text is None:
            if self._now() >= self._deadline + _MARGIN_S:
                raise missing((0,), f"the agreement on a {self._kind}", self._patience_s)
            return None
        word = decode(text).word
        if isinstance(word, BaseException):
            raise word
        return int(word)

    def _close(self, target: int, request: _Request) -> None:
        with self._lock:
            self._course.agree(target, Asked(kind=request.kind, rank=request.rank, reason=request.reason))
            self._open = None
            self._lock.notify_all()
        self.over = request.kind is Kind.STOP
        if self._number:
            before = self._number - 1  # all ranks have come to this round, so nobody asks for the one before
            self._forget(before)
        self._number += 1
        self._ask_at = 0.0

    def _forget(self, number: int) -> None:
        mine = ("request", "target") if self._keys.rank == 0 else (f"promise/{self._keys.rank}",)
        for name in mine:
            self._keys.forget(self._key(name, number))

    @property
    def _kind(self) -> str:
        return self._open.kind.value if self._open else ""

    def _key(self, name: str, number: int | None = None) -> str:
        return f"{self._place}/{self._number if number is None else number}/{name}"
