"""Ranks as threads of one process, with a clock that runs faster than ours."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from everstep.ranks import Exchange, Identity, Ranks
from everstep.ranks.local_exchange import LocalExchange

__all__ = ["FASTER", "all_ranks", "rank_of"]

FASTER = 20
"""Seconds of the ranks in one of ours."""


def rank_of(exchange: Exchange, rank: int, world: int, **more: Any) -> Ranks:
    """A rank whose seconds are short."""
    return Ranks(
        exchange,
        Identity(rank=rank, world=world),
        **{
            "sleep": lambda seconds: time.sleep(seconds / FASTER),
            "now": lambda: time.monotonic() * FASTER,
            "node": "here",
            **more,
        },
    )


def all_ranks(
    world: int,
    does: Callable[[Ranks], Any],
    *,
    exchange: Exchange | None = None,
    without: Iterable[int] = (),
    **more: Any,
) -> dict[int, Any]:
    """What each rank returns or raises, by its number; those ``without`` never start."""
    shared = LocalExchange() if exchange is None else exchange
    results: dict[int, Any] = {}

    def run(rank: int) -> None:
        try:
            results[rank] = does(rank_of(shared, rank, world, **more))
        except BaseException as error:  # noqa: BLE001  # the test looks at it
            results[rank] = error

    threads = [
        threading.Thread(target=run, args=(rank,)) for rank in range(world) if rank not in set(without)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
