"""The saves whose packs a copy relies on in its destination: pinned first, looked at afterwards."""

from __future__ import annotations

from collections.abc import Iterable

from everstep.errors import CheckpointPruned
from everstep.format.ids import SaveId, parse_save
from everstep.format.records import Parent
from everstep.repository.catalogue import decided
from everstep.repository.decisions import read_decision
from everstep.repository.keys import save_of_pack
from everstep.repository.repository import Repository
from everstep.repository.runs import runs
from everstep.repository.tombs import tombed

__all__ = ["check_pins", "owners", "pins"]


def owners(packs: Iterable[str], save: SaveId) -> frozenset[SaveId]:
    """The saves that wrote these packs, other than ``save`` itself."""
    found = {owner for key in packs if (owner := save_of_pack(key)) is not None}
    return frozenset(found - {save})


def pins(repo: Repository, needed: frozenset[SaveId], run: str) -> tuple[Parent, ...]:
    """What the plan of a copy names as its bases: each owner in each run that has decided it.

    An owner that no run there knows is named under the copy's own run: a sweep goes by the save in a
    pack's key.
    """
    if not needed:
        return ()
    homes = _homes(repo, needed)
    known = {save for _, save in homes}
    named = [*homes, *((run, save) for save in needed if save not in known)]
    return tuple(Parent(run=where, save=str(save)) for where, save in sorted(named))


def check_pins(repo: Repository, bases: Iterable[Parent]) -> None:
    """Raise `CheckpointPruned` if an owner was pruned or aborted there: its packs may be swept at any time.

    To be called after the plan is there: what is not dead now is then kept by every later sweep.
    """
    needed = frozenset(parse_save(base.save) for base in bases)
    for run, save in _homes(repo, needed) if needed else ():
        if read_decision(repo, run, save).state != "committed" or tombed(repo, run, save):
            raise CheckpointPruned(
                f"{repo.store.url} has given up {run}@{save.step}, whose packs the copy would need",
                hint="copy into another store, or another folder of this one",
                run=run,
                save=str(save),
            )


def _homes(repo: Repository, needed: frozenset[SaveId]) -> list[tuple[str, SaveId]]:
    return [
        (record.run, save) for record in runs(repo) for save in decided(repo, record.run) if save in needed
    ]
