"""Saves that were begun long ago and never decided: given up, so that what they hold can be swept."""

from __future__ import annotations

from collections.abc import Iterable

from everstep.format.ids import SaveId
from everstep.repository.decisions import aborted, decide
from everstep.repository.repository import Repository

__all__ = ["STALE_S", "abort_stale"]

STALE_S = 7 * 86_400.0
"""Seconds by the store's clock after which nobody is believed to be at work on a save any more."""


def abort_stale(
    repo: Repository, run: str, saves: Iterable[SaveId], *, older_than_s: float = STALE_S
) -> list[SaveId]:
    """Decide these undecided saves, whose plans are older than ``older_than_s``: aborted, unless committed meanwhile.

    Who still works on one is told `SaveAborted`. Returns those that are decided now: all.
    """
    done = []
    for save in saves:
        why = f"nobody decided it for {older_than_s / 86_400.0:g} days"
        decide(repo, aborted(repo, run, save, why), save)
        done.append(save)
    return done
