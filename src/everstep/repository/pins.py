"""What a copy relies on in its destination: packs that are there already. Pinned first, looked at afterwards."""

from __future__ import annotations

from collections.abc import Iterable

from everstep.errors import CheckpointPruned
from everstep.format.ids import SaveId, parse_save
from everstep.format.records import Parent, PlanRecord
from everstep.repository.catalogue import committed, decided
from everstep.repository.decisions import decision
from everstep.repository.heirs import inherit
from everstep.repository.keys import orphan_key, save_of_pack
from everstep.repository.objects import exists
from everstep.repository.reading import read_manifest
from everstep.repository.repository import Repository
from everstep.repository.runs import runs
from everstep.repository.tombs import pruned, tombed

__all__ = ["check_pins", "link", "pins"]

Home = tuple[str, SaveId]


def pins(repo: Repository, packs: Iterable[str], save: SaveId, run: str) -> tuple[Parent, ...]:
    """What the plan of a copy names as its bases, so that every sweep keeps these packs, all that the copy needs.

    Where another run has this save too, that is enough: it has the same packs. Else it is each owner of a pack in a run
    where it stands; or, where it does not any more, checkpoints of the copy's run that refer to its packs. An owner
    that no run there knows is named under the copy's own run: a sweep goes by the save in a pack's key. Raises
    `CheckpointPruned` when a pack may be swept at any time.
    """
    needed: dict[SaveId, set[str]] = {}
    for key in packs:
        if (owner := save_of_pack(key)) is not None and owner != save:
            needed.setdefault(owner, set()).add(key)
    homes = [home for home in _homes(repo, {save, *needed}) if home != (run, save)]
    alike = next((home for home in homes if home[1] == save and _stands(repo, *home)), None)
    if alike is not None:
        return (Parent(run=alike[0], save=str(save)),)
    named: set[Home] = set()
    lost: dict[SaveId, set[str]] = {}
    for owner, keys in needed.items():
        known = [home for home in homes if home[1] == owner]
        standing = next((home for home in known if _stands(repo, *home)), None)
        if standing is not None:
            named.add(standing)
        elif known or exists(repo.store, orphan_key(owner)):
            lost[owner] = keys
        else:
            named.add((run, owner))
    if lost:
        named |= _covering(repo, run, lost)
    return tuple(Parent(run=where, save=str(owner)) for where, owner in sorted(named))


def link(repo: Repository, bases: Iterable[Parent], run: str) -> None:
    """Say of each run that a copy relies on that this one is its heir; before the plan."""
    for of in sorted({base.run for base in bases} - {run}):
        inherit(repo, of=of, heir=run)


def check_pins(repo: Repository, plan: PlanRecord) -> None:
    """Raise `CheckpointPruned` if what a copy relies on was pruned or given up there: it may be swept at any time.

    To be called after the plan is there: what is not dead now is then kept by every later sweep.
    """
    own = parse_save(plan.save)
    named = {(base.run, parse_save(base.save)) for base in plan.bases}
    unknown = {own} if own not in {save for _, save in named} else set()
    for run, save in sorted(named):
        record = decision(repo, run, save)
        if record is None:
            unknown.add(save)
        elif record.state != "committed" or tombed(repo, run, save):
            raise _gone(repo, run, save)
    for run, save in _homes(repo, unknown) if unknown else ():
        if (run, save) != (plan.run, own) and not _stands(repo, run, save):
            raise _gone(repo, run, save)
    for save in sorted(unknown):
        if exists(repo.store, orphan_key(save)):
            raise _gone(repo, plan.run, save)


def _covering(repo: Repository, run: str, lost: dict[SaveId, set[str]]) -> set[Home]:
    """Checkpoints of a run that refer to all these packs, by owner. Raises `CheckpointPruned` without."""
    missing = set[str]().union(*lost.values())
    found: set[Home] = set()
    gone = pruned(repo, run)
    for save in decided(repo, run):
        if not missing:
            break
        if str(save) in gone or (one := committed(repo, run, save)) is None:
            continue
        shared = missing.intersection(read_manifest(repo, one).packs)
        if shared:
            found.add((run, save))
            missing -= shared
    for owner, keys in lost.items():
        if keys & missing:
            raise _gone(repo, run, owner)
    return found


def _stands(repo: Repository, run: str, save: SaveId) -> bool:
    record = decision(repo, run, save)
    return record is not None and record.state == "committed" and not tombed(repo, run, save)


def _homes(repo: Repository, needed: Iterable[SaveId]) -> list[Home]:
    """The runs that have decided these saves."""
    wanted = frozenset(needed)
    return [
        (record.run, save) for record in runs(repo) for save in decided(repo, record.run) if save in wanted
    ]


def _gone(repo: Repository, run: str, save: SaveId) -> CheckpointPruned:
    return CheckpointPruned(
        f"{repo.store.url} has given up {run}@{save.step}, whose packs the copy would need",
        hint="copy into another store, or another folder of this one",
        run=run,
        save=str(save),
    )
