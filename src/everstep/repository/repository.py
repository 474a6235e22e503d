"""A store with everstep's layout in it, and the few things the outside world gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from everstep.format.records import StoreRecord
from everstep.store.protocol import Store

__all__ = ["Repository"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """An opened store. ``clock`` gives seconds since 1970; ``entropy(n)`` gives n random bytes in hexadecimal."""

    store: Store
    record: StoreRecord
    clock: Callable[[], float]
    entropy: Callable[[int], str]
