"""Waiting for other ranks: short naps that grow, and a deadline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from everstep.errors import RanksMissing

__all__ = ["Waiting", "missing", "ranks_text"]

_T = TypeVar("_T")
_FIRST_NAP_S = 0.001
_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """How to sleep, what time it is, and the longest nap between two questions, in seconds."""

    sleep: Callable[[float], None]
    now: Callable[[], float]
    poll_s: float

    @property
    def margin_s(self) -> float:
        """What a rank waits beyond the deadline of another, so that the other's answer arrives."""
        return 5.0 + 3 * self.poll_s

    def deadline(self, timeout_s: float) -> float:
        """The instant at which patience ends."""
        return self.now() + timeout_s

    def first(self, ask: Callable[[], _T | None], until: float) -> _T | None:
        """The first answer that is not None; None when there was none at the deadline or after it."""
        nap_s = _FIRST_NAP_S
        while (answer := ask()) is None:
            left_s = until - self.now()
            if left_s <= 0:
                return None
            self.sleep(min(nap_s, self.poll_s, left_s))
            nap_s *= 1.5
        return answer


def ranks_text(ranks: tuple[int, ...]) -> str:
    """``rank 3``, ``ranks 3, 5 and 8``, with at most 20 of them."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > _SHOWN:
        return f"ranks {', '.join(map(str, ranks[:_SHOWN]))} and {len(ranks) - _SHOWN} more"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def missing(ranks: tuple[int, ...], topic: str, timeout_s: float) -> RanksMissing:
    """The error that names the ranks that did not come."""
    return RanksMissing(
        f"{ranks_text(ranks)} did not come to {topic!r} within {timeout_s:g} s",
        hint="look at their logs: they stopped, hang, or are slower than EVERSTEP_PATIENCE seconds",
        missing=ranks,
        topic=topic,
    )
