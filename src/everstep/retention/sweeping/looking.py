"""What is live: a look at the plans of some runs, then at their commit records, in this order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from everstep.errors import MissingObject, ObjectNotFound
from everstep.format.ids import SaveId, parse_save
from everstep.format.records import Parent
from everstep.repository.catalogue import decided
from everstep.repository.checkpoint import Checkpoint, checkpoint_of
from everstep.repository.decisions import decision
from everstep.repository.keys import plans_prefix, save_of_pack, save_of_plan
from everstep.repository.objects import listed
from everstep.repository.parallel import gather
from everstep.repository.plans import read_plan
from everstep.repository.repository import Repository
from everstep.repository.stale import abort_stale
from everstep.repository.tombs import Grave, find_grave
from everstep.retention.marking import PackLists
from everstep.retention.sweeping.store_time import StoreTime
from everstep.store.protocol import Listed

__all__ = ["Look", "Overtaken", "Place", "Seen", "look"]

Place = tuple[str, SaveId]


class Overtaken(Exception):
    """Another prune went on meanwhile, and what was seen does not fit together: look again from the beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is known of a run before the look: its pruned saves, and those that had a commit record.

    ``decided`` of None: not looked at.
    """

    graves: Mapping[SaveId, Grave]
    decided: frozenset[SaveId] | None = None


@dataclass(slots=True, kw_only=True)
class Look:
    """What some runs hold.

    ``plans`` by run and save, with their size. ``decided`` are the saves with a commit record, ``undecided`` those
    with a plan alone, and ``bases`` what these rely on, each with those that do. ``live`` are packs that are needed,
    ``named`` the saves whose packs are, whatever these are. ``standing`` are the committed saves that are not pruned.
    """

    plans: dict[Place, Listed] = field(default_factory=dict)
    decided: dict[str, frozenset[SaveId]] = field(default_factory=dict)
    undecided: set[Place] = field(default_factory=set)
    bases: dict[Place, list[Place]] = field(default_factory=dict)
    live: set[str] = field(default_factory=set)
    named: set[SaveId] = field(default_factory=set)
    standing: dict[str, list[Checkpoint]] = field(default_factory=dict)

    def homes(self) -> dict[SaveId, list[str]]:
        """The runs that know each save, decided or planned."""
        found: dict[SaveId, list[str]] = {}
        for run, saves in self.decided.items():
            for save in saves:
                found.setdefault(save, []).append(run)
        for run, save in self.undecided:
            found.setdefault(save, []).append(run)
        return found

    def needs(self, pack: str) -> bool:
        """Whether anything that is live may refer to this pack."""
        return pack in self.live or save_of_pack(pack) in self.named


def look(
    repo: Repository,
    runs: Iterable[str],
    *,
    seen: Mapping[str, Seen],
    frozen: frozenset[Place],
    lists: PackLists,
    time: StoreTime,
    stale_s: float,
) -> Look:
    """Look at the plans of all these runs, then at their commit records, then at what stands.

    ``seen`` tells of each run which saves were pruned, listed before its heirs were. ``frozen`` are the dead whose
    packs may go. Undecided saves that are older than ``stale_s`` are given up. Raises an `IntegrityError` for a
    manifest that is needed and cannot be read, and `Overtaken` when one is gone that another sweep has deleted since
    the dead were frozen.
    """
    names = list(runs)
    found = Look()
    for run in names:
        for one in time.saw(listed(repo.store, plans_prefix(run))):
            if (save := save_of_plan(run, one.key)) is not None:
                found.plans[run, save] = one
    for run in names:
        _records(repo, run, found, seen[run].decided, time=time, stale_s=stale_s)
    for run in names:
        _stand(repo, run, found, seen[run].graves, frozen=frozen, lists=lists)
    for run, save in sorted(found.bases):
        _base(repo, run, save, found, lists)
    return found


def _records(
    repo: Repository,
    run: str,
    found: Look,
    known: frozenset[SaveId] | None,
    *,
    time: StoreTime,
    stale_s: float,
) -> None:
    """Who is decided. The list is not made again when every plan is of a save that was decided before."""
    planned = {save for where, save in found.plans if where == run}
    done = known if known is not None and planned <= known else frozenset(decided(repo, run))
    open_saves = sorted(planned - done)
    for save in abort_stale(
        repo,
        run,
        [save for save in open_saves if time.surely_passed(found.plans[run, save].modified, stale_s)],
        older_than_s=stale_s,
    ):
        done |= {save}
    found.decided[run] = done
    for save, bases in gather(lambda save: (save, _bases(repo, run, save)), sorted(planned - done)):
        if bases is None:
            continue
        found.undecided.add((run, save))
        found.named.add(save)
        for base in bases:
            place = (base.run, parse_save(base.save))
            found.bases.setdefault(place, []).append((run, save))
            found.named.add(place[1])


def _bases(repo: Repository, run: str, save: SaveId) -> tuple[Parent, ...] | None:
    """What an undecided save relies on; None when its plan is gone: it was given up and swept meanwhile."""
    try:
        return read_plan(repo, run, save).bases
    except ObjectNotFound:
        return None


def _stand(
    repo: Repository,
    run: str,
    found: Look,
    dead: Mapping[SaveId, Grave],
    *,
    frozen: frozenset[Place],
    lists: PackLists,
) -> None:
    """The packs of all that stands, and of the pruned that are not frozen, as far as these are still there."""
    saves = [
        save
        for save in found.decided[run]
        if (run, save) not in frozen and (save not in dead or (run, save) in found.plans)
    ]
    committed = lists.committed(run, sorted(saves))
    found.standing[run] = [one for one in committed if one.save not in dead]
    for packs in gather(lambda one: _packs(repo, one, lists, dead), committed):
        found.live |= packs


def _packs(
    repo: Repository, checkpoint: Checkpoint, lists: PackLists, dead: Mapping[SaveId, Grave]
) -> frozenset[str]:
    try:
        return lists.packs(checkpoint)
    except MissingObject as error:
        if checkpoint.save in dead:
            return (
                frozenset()
            )  # another sweep is at work on it: whoever relies on it has a plan that was seen
        if find_grave(repo, checkpoint.run, checkpoint.save) is not None:
            raise Overtaken from error
        raise


def _base(repo: Repository, run: str, save: SaveId, found: Look, lists: PackLists) -> None:
    """The packs of a base.

    A sweep that has deleted its manifest saw the plan that names it decided, or saw it not: then its writer has seen
    the tomb, and does without this base.
    """
    try:
        record = lists.decision(run, save)
    except ObjectNotFound:
        return  # named under the copy's own run: its packs are known by its name
    if record.state != "committed":
        return
    try:
        found.live |= lists.packs(checkpoint_of(record, run, save))
    except MissingObject as error:
        if find_grave(repo, run, save) is None:
            raise
        if any(decision(repo, *place) is not None for place in found.bases[run, save]):
            raise Overtaken from error
