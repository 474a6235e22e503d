"""Saves that were begun long ago and never decided: finished or given up, so that what they hold can be swept."""

from __future__ import annotations

from collections.abc import Iterable

from everstep.format.ids import SaveId
from everstep.repository.repository import Repository
from everstep.repository.settle import finish

__all__ = ["STALE_S", "abort_stale"]

STALE_S = 7 * 86_400.0
"""Seconds by the store's clock after which nobody is believed to be at work on a save any more."""


def abort_stale(
    repo: Repository, run: str, saves: Iterable[SaveId], *, older_than_s: float = STALE_S
) -> list[SaveId]:
    """Decide these undecided saves, whose plans are older than ``older_than_s``: as an attempt does, `finish`.

    Who still works on one is told `SaveAborted`. Returns those that are decided now: all.
    """
    done = []
    for save in saves:
        finish(repo, run, save, f"nobody decided it for {older_than_s / 86_400.0:g} days")
        done.append(save)
    return done
