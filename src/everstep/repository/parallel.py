"""Many small requests at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["gather"]

T = TypeVar("T")
R = TypeVar("R")

_FEW = 4
_WORKERS = 16


def gather(function: Callable[[T], R], items: Sequence[T], *, workers: int = _WORKERS) -> list[R]:
    """The results in order, made by up to ``workers`` threads at a time; the first error is raised."""
    if len(items) <= _FEW or workers <= 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(workers, len(items)), thread_name_prefix="everstep-gather") as threads:
        return list(threads.map(function, items))
