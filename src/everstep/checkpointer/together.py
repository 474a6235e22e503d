"""What the ranks of a launch do together: one does it for all, or all do it and all succeed or none."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeVar

from everstep.errors import EverstepError
from everstep.ranks import Identity, Ranks
from everstep.ranks.local_exchange import LocalExchange

__all__ = ["Together", "alone"]

T = TypeVar("T")

_FAREWELL_S = 30.0


class Together:
    """The ranks of one launch, and how long they wait for each other, in seconds.

    All ranks make the same calls with the same topics in the same order, per family of topics (what stands
    before the first ``/``). Alone, nothing is exchanged: what is asked for is done at once.
    """

    def __init__(self, ranks: Ranks, *, patience_s: float) -> None:
        self.ranks = ranks
        self.patience_s = patience_s

    @property
    def _alone(self) -> bool:
        return self.ranks.world == 1

    def from_first(self, topic: str, make: Callable[[], bytes]) -> bytes:
        """What rank 0 makes; an error in it is raised on all ranks. Raises `RanksMissing` when rank 0 does not tell."""
        if self._alone:
            return make()
        if self.ranks.rank:
            return self.ranks.hear(topic, timeout_s=self.patience_s)
        try:
            made = make()
        except BaseException as error:
            self.ranks.tell(topic, error)
            raise
        self.ranks.tell(topic, made)
        return made

    def all_or_none(self, topic: str, do: Callable[[], T]) -> T:
        """What this rank does, once every rank has done its own; an error of one is raised on all, naming it."""
        done: list[T] = []

        def part() -> bytes:
            done.append(do())
            return b""

        self.decided(topic, part, lambda _words: b"")
        return done[0]

    def decided(
        self, topic: str, part: Callable[[], bytes], decide: Callable[[Mapping[int, bytes]], bytes]
    ) -> bytes:
        """What rank 0 decides from every rank's part; an error of any rank, or of ``decide``, is raised on all.

        Raises `RanksMissing` naming the ranks that did not come.
        """
        if self._alone:
            return decide({0: part()})
        try:
            mine = part()
        except BaseException as error:
            self.ranks.settle(topic, error, decide, timeout_s=self.patience_s)
            raise
        return self.ranks.settle(topic, mine, decide, timeout_s=self.patience_s)

    def fail(self, topic: str, error: BaseException) -> None:
        """Take no part in what would be decided under a topic, rank 0 telling first: the error is raised on all."""
        if self._alone:
            return
        if self.ranks.rank == 0:
            self.ranks.tell(topic, error)
        with suppress(type(error)):
            self.ranks.settle(topic, error, lambda _words: b"", timeout_s=self.patience_s)

    def farewell(self) -> None:
        """Rank 0 leaves last, because its process may carry the words; it waits half a minute at most.

        Best effort: a rank that has died says no farewell.
        """
        if self._alone:
            return
        if self.ranks.rank:
            with suppress(EverstepError):
                self.ranks.tell(f"farewell/{self.ranks.rank}", b"")
            return
        until = time.monotonic() + _FAREWELL_S
        with suppress(EverstepError):
            for rank in range(1, self.ranks.world):
                left_s = max(0.0, until - time.monotonic())
                self.ranks.hear(f"farewell/{rank}", timeout_s=left_s, who=rank)


def alone() -> Together:
    """One rank with nobody to wait for."""
    return Together(Ranks(LocalExchange(), Identity(rank=0, world=1)), patience_s=0.0)
