"""Bringing back a checkpoint that was pruned and not swept yet."""

from __future__ import annotations

from dataclasses import replace

from everstep.errors import CheckpointPruned
from everstep.format.ids import SaveId
from everstep.repository.catalogue import committed, decided, find
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.fates import raise_up
from everstep.repository.replaced import standing
from everstep.repository.repository import Repository
from everstep.repository.runs import find_run
from everstep.repository.tombs import graves

__all__ = ["undelete"]


def undelete(repo: Repository, run: str, which: int | SaveId) -> Checkpoint:
    """Make a pruned checkpoint stand again: of a step, in the newest attempt that has it, or a save.

    One that stands is left as it is; of one that was repacked the checkpoint that has its place is meant. A policy may
    prune it again: what is tagged it keeps. Raises `RunNotFound`,
    `CheckpointNotFound`, and `CheckpointPruned` when its bytes may be gone already.
    """
    find_run(repo, run)
    buried = graves(repo, run)
    step = which.step if isinstance(which, SaveId) else which
    saves = [save for save in decided(repo, run) if which in {save, save.step}]
    wanted = list(dict.fromkeys(standing(repo, run, save) if save in buried else save for save in saves))
    for save in wanted:
        found = committed(repo, run, save)
        if found is None or (save in buried and not raise_up(repo, buried[save])):
            continue
        return replace(found, tags=())
    if not any(save in buried for save in wanted):
        return find(repo, run, step)  # says what there is instead
    raise CheckpointPruned(
        f"{run}@{step} was pruned and is being swept: its bytes may be gone",
        hint="what is pruned can be undeleted within its grace: everstep prune --grace",
        run=run,
        step=step,
    )
