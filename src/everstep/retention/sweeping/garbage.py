"""Which objects of the dead nothing needs, and their deletion in an order that may stop anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from everstep.errors import InvalidName
from everstep.format.ids import SaveId, parse_save
from everstep.repository.keys import orphan_key, save_of_pack, save_prefix, saves_prefix
from everstep.repository.objects import create_mark, listed
from everstep.repository.repository import Repository
from everstep.retention.marking import PackLists
from everstep.retention.sweeping.deleting import Deleting
from everstep.retention.sweeping.looking import Look, Place

__all__ = ["Garbage", "find_orphans"]

Doomed = Mapping[Place, frozenset[str] | None]
Sized = list[tuple[str, int]]


def find_orphans(repo: Repository, packs: Mapping[str, int], found: Look) -> frozenset[SaveId]:
    """The saves that no run knows, of whose packs some are not needed. From here on no copy relies on them.

    What is needed must be looked at again before any is deleted.
    """
    known = found.homes()
    owners = {save for key in packs if not found.needs(key) and (save := save_of_pack(key)) is not None}
    for save in sorted(owners - known.keys()):
        create_mark(repo.store, orphan_key(save), b"{}")
    return frozenset(owners - known.keys())


@dataclass(slots=True, kw_only=True)
class Garbage:
    """What may go, after a look at all that may need it.

    ``copied`` has for each run the attempt up to which its saves may be copies; it is None when the whole store was
    looked at, and then ``packs`` are all packs of it, with their bytes.
    """

    repo: Repository
    found: Look
    targets: tuple[str, ...]
    copied: Mapping[str, int] | None
    lists: PackLists
    packs: dict[str, int]
    orphans: frozenset[SaveId]
    gone_before: Callable[[str, SaveId], bool]

    def delete(self, doomed: Doomed, deleting: Deleting) -> tuple[tuple[Place, ...], set[Place]]:
        """Delete what only the doomed need; those of which nothing is left, and those of which something is.

        Packs go first, then indexes, manifests, plans: each only when what goes before it is gone.
        """
        garbage = self._by_name(doomed)
        kept = self._by_manifest(doomed, garbage)
        indexes, manifests = self._tellers(doomed, kept)
        plans = [self.found.plans[place] for place in sorted(doomed.keys() - kept)]
        done = (
            deleting.delete_packs(garbage)
            and deleting.delete_objects(indexes)
            and deleting.delete_objects(manifests)
            and deleting.delete_objects((one.key, one.size) for one in plans)
        )
        if not done:
            return (), set(doomed)
        for place in doomed:
            if place in kept:
                self.lists.leave(place)
            else:
                self.lists.forget(*place)
        return tuple(place for place in sorted(doomed) if place not in kept), kept

    def _by_name(self, doomed: Doomed) -> set[str]:
        """Packs of saves without a manifest; of the whole store all that nothing needs."""
        homes = self.found.homes()
        if self.copied is None:
            dead = {
                save
                for save in {save_of_pack(key) for key in self.packs if not self.found.needs(key)} - {None}
                if save is not None and self._dead(save, homes.get(save, ()), doomed)
            }
        else:
            dead = {place[1] for place, packs in doomed.items() if packs is None and self._may(place[1])}
            if dead:
                self.packs = {one.key: one.size for one in listed(self.repo.store, "packs/")}
        for key, size in self.packs.items():
            self.lists.learn_size(key, size)
        return {key for key in self.packs if save_of_pack(key) in dead and not self.found.needs(key)}

    def _dead(self, save: SaveId, runs: list[str] | tuple[()], doomed: Doomed) -> bool:
        """Whether a save is dead, and was when the dead were frozen, in all runs that know it."""
        if not runs:
            return save in self.orphans
        return all(
            (run, save) in doomed or ((run, save) not in self.found.plans and self.gone_before(run, save))
            for run in runs
        )

    def _by_manifest(self, doomed: Doomed, garbage: set[str]) -> set[Place]:
        """Add the packs that manifests of the doomed name; those whose manifest must stay, to tell of what is left."""
        kept: set[Place] = set()
        told: set[str] = set()
        for place in sorted(doomed):
            packs = doomed[place]
            rest = {key for key in packs or () if not self.found.needs(key)} - garbage
            if self.copied is None:
                rest &= self.packs.keys()
            ours = {key for key in rest if self._may(save_of_pack(key))}
            garbage |= ours
            untold = packs is None and self.copied is not None and not self._may(place[1])
            if rest - ours - told or untold:
                kept.add(place)
                told |= rest - ours
        return kept

    def _may(self, owner: SaveId | None) -> bool:
        """Whether all was looked at that may refer to a save's packs: all runs, or the heirs of where it was born."""
        if owner is None or self.copied is None:
            return False  # of the whole store packs go by their names
        return any(
            (owner in self.found.decided[run] or (run, owner) in self.found.undecided)
            and owner.attempt > self.copied.get(run, 0)
            for run in self.targets
        )

    def _tellers(self, doomed: Doomed, kept: set[Place]) -> tuple[Sized, Sized]:
        """The indexes and the manifests that go."""
        indexes: Sized = []
        manifests: Sized = []
        for place, key, size in self._under(doomed):
            if not key.startswith(f"{save_prefix(*place)}manifest."):
                indexes.append((key, size))
            elif place not in kept:
                manifests.append((key, size))
        return indexes, manifests

    def _under(self, doomed: Doomed) -> Iterator[tuple[Place, str, int]]:
        """What lies in the folders of the doomed; of the whole store also what came late of those swept before."""
        if self.copied is not None:
            for place in sorted(doomed):
                for one in listed(self.repo.store, save_prefix(*place)):
                    yield place, one.key, one.size
            return
        for run in self.targets:
            late: dict[SaveId, bool] = {}
            for one in listed(self.repo.store, saves_prefix(run)):
                save = _save(one.key.removeprefix(saves_prefix(run)).partition("/")[0])
                if save is None:
                    continue
                if (run, save) not in doomed and save not in late:
                    late[save] = (run, save) not in self.found.plans and self.gone_before(run, save)
                if (run, save) in doomed or late[save]:
                    yield (run, save), one.key, one.size


def _save(name: str) -> SaveId | None:
    try:
        return parse_save(name)
    except InvalidName:
        return None
