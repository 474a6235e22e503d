"""What older attempts left undecided: a complete save is finished, any other is given up for ever."""

from __future__ import annotations

from everstep.errors import IntegrityError, ObjectNotFound, SaveError
from everstep.format.ids import SaveId
from everstep.repository.arrivals import arrivals, missing_ranks
from everstep.repository.catalogue import decided
from everstep.repository.completing import complete
from everstep.repository.decisions import aborted, decide
from everstep.repository.fence import Attempt
from everstep.repository.keys import plans_prefix, save_of_plan
from everstep.repository.objects import listed
from everstep.repository.plans import read_plan
from everstep.repository.repository import Repository

__all__ = ["finish", "settle", "undecided"]


def undecided(repo: Repository, run: str) -> list[SaveId]:
    """The saves of a run that were begun and are neither committed nor aborted, oldest step first.

    Plans are listed first: a save that is decided in between is left out by the second list.
    """
    planned = [save_of_plan(run, found.key) for found in listed(repo.store, plans_prefix(run))]
    done = set(decided(repo, run))
    return [save for save in planned if save is not None and save not in done]


def settle(repo: Repository, attempt: Attempt) -> None:
    """Decide every save of an older attempt; afterwards none of them can change its fate."""
    for save in undecided(repo, attempt.run):
        if save.attempt < attempt.number:
            finish(repo, attempt.run, save, f"attempt {attempt.number} took over")


def finish(repo: Repository, run: str, save: SaveId, why: str) -> None:
    """Commit a save if all its indexes are there; else give it up, for ``why`` and for what it lacks."""
    if (lacks := _finish(repo, run, save)) is not None:
        decide(repo, aborted(repo, run, save, f"{why}: {lacks}"), save)


def _finish(repo: Repository, run: str, save: SaveId) -> str | None:
    """Commit the save; why it cannot be, or None when it is decided."""
    try:
        plan = read_plan(repo, run, save)
        refs = arrivals(repo, run, save, plan.world)
        if missing := missing_ranks(refs, plan.world):
            return f"no index of {missing}"
        complete(repo, plan, save, refs)
    except ObjectNotFound as error:
        return f"its plan or an index is gone ({error.message})"
    except (IntegrityError, SaveError) as error:
        return f"{error.code} {error.message}"
    return None
