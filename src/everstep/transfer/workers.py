"""Threads over a list of tasks: the first error stops the others and is raised."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

__all__ = ["default_workers", "run_all"]

T = TypeVar("T")


def default_workers() -> int:
    """How many processors this process may use, at most 8."""
    if hasattr(os, "sched_getaffinity"):
        return min(8, len(os.sched_getaffinity(0)))
    return min(8, os.cpu_count() or 1)


def run_all(tasks: Iterable[T], work: Callable[[T], None], *, workers: int, name: str) -> None:
    """Do ``work`` for each task on ``workers`` threads, the caller's among them, in the order given.

    After the first error no further task is begun; it is raised once those under way have ended.
    Plain threads, not an executor: they can be started while the interpreter waits for a last save.
    """
    queue = iter(tasks)
    lock = threading.Lock()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            while True:
                with lock:
                    if errors:
                        return
                    try:
                        task = next(queue)
                    except StopIteration:
                        return
                work(task)
        except BaseException as error:  # noqa: BLE001 - carried over to the caller's thread, where it is raised
            with lock:
                errors.append(error)

    threads = [threading.Thread(target=run, name=f"{name}-{n}", daemon=True) for n in range(1, workers)]
    for thread in threads:
        thread.start()
    run()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
