"""The pruned checkpoints of a run, as people ask for them: which can be brought back, since when, and why pruned."""

from __future__ import annotations

from dataclasses import dataclass

from everstep.errors import IntegrityError
from everstep.repository.catalogue import decided
from everstep.repository.checkpoint import Checkpoint, checkpoint_of
from everstep.repository.decisions import read_decision
from everstep.repository.keys import sweep_key, sweeps_prefix
from everstep.repository.objects import listed
from everstep.repository.parallel import gather
from everstep.repository.repository import Repository
from everstep.repository.runs import find_run
from everstep.repository.tombs import Grave, graves, tomb

__all__ = ["Buried", "undeletable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Buried:
    """A pruned checkpoint whose bytes are there: ``since`` when by the store's clock (seconds since 1970), and why."""

    checkpoint: Checkpoint
    since: float
    why: str


def undeletable(repo: Repository, run: str) -> list[Buried]:
    """The pruned checkpoints that can be brought back, newest first: no sweep has begun with them.

    Those that were rewritten are left out: another has their place. Four lists, and two requests for each.
    Raises `RunNotFound`.
    """
    find_run(repo, run)
    buried = graves(repo, run)
    doomed = {found.key for found in listed(repo.store, sweeps_prefix(run))}
    wanted = [
        buried[save]
        for save in decided(repo, run)
        if save in buried and sweep_key(run, save, buried[save].number) not in doomed
    ]
    return [one for one in gather(lambda grave: _read(repo, grave), wanted) if one is not None]


def _read(repo: Repository, grave: Grave) -> Buried | None:
    try:
        record = tomb(repo, grave.run, grave.save)
    except IntegrityError:
        why = "its tomb cannot be read"
    else:
        if record is None or record.replaced_by:
            return None
        why = record.why
    decision = read_decision(repo, grave.run, grave.save)
    if decision.state != "committed":
        return None
    return Buried(checkpoint=checkpoint_of(decision, grave.run, grave.save), since=grave.since, why=why)
