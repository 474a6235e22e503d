"""The sweep: deletes the bytes of dead saves that nothing live needs. The order of its steps is the proof:
freeze the dead; then tags and readers, heirs, plans, commit records; then fates; then packs, what tells of them last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from everstep.errors import AlreadyExists, IntegrityError, MissingObject
from everstep.format.ids import SaveId
from everstep.repository.catalogue import decided
from everstep.repository.checkpoint import Checkpoint, checkpoint_of
from everstep.repository.fates import doom, raise_up
from everstep.repository.heirs import Family, families
from everstep.repository.keys import orphan_key, save_of_pack, save_prefix
from everstep.repository.objects import create_same, listed
from everstep.repository.repository import Repository
from everstep.repository.runs import runs as all_runs
from everstep.repository.stale import STALE_S
from everstep.repository.tombs import Grave, graves
from everstep.repository.verified import verified
from everstep.retention.deleting import Deleting
from everstep.retention.looking import Look, Place, Seen, look
from everstep.retention.marking import PackLists
from everstep.retention.pinned import find_pinned, holds
from everstep.retention.store_time import StoreTime
from everstep.retention.tidying import tidy

__all__ = ["Swept", "never", "sweep"]


def never() -> bool:
    """Goes on to the end."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What a sweep has done.

    ``swept`` are run and save of those of which nothing is left; ``waiting`` of those of which something is: in their
    grace, being read, needed by a save under way, or with packs that only a sweep of the whole store may delete.
    ``undeleted`` stand again: a tag names them, or nothing that was verified was left. ``packs``, ``objects`` (packs
    included) and ``bytes`` are what is gone from the store.
    """

    swept: tuple[Place, ...]
    waiting: tuple[Place, ...]
    undeleted: tuple[Place, ...]
    packs: int
    objects: int
    bytes: int


def sweep(
    repo: Repository,
    runs: Sequence[str] | None,
    *,
    grace_s: float,
    stop: Callable[[], bool] = never,
    measure: bool = True,
    lists: PackLists | None = None,
    seen: Mapping[str, Seen] | None = None,
    stale_s: float = STALE_S,
) -> Swept:
    """Delete what only dead saves of these runs need; of None: of all runs, and what no run knows.

    Dead is what was given up, and what was pruned at least ``grace_s`` ago by the store's clock. Undecided saves older
    than ``stale_s`` are given up. ``stop`` is asked between requests: what is left is done by the next sweep. ``lists``
    keeps what never changes for the next one; ``seen`` is what is known of some runs already, tombs included. Without
    ``measure`` bytes of packs whose size nobody asked for are not counted.

    Raises an `IntegrityError` for what is live and cannot be read; then nothing was deleted.
    """
    lists = lists or PackLists(repo)
    return _Sweep(
        repo=repo,
        whole=runs is None,
        targets=tuple(one.run for one in all_runs(repo)) if runs is None else tuple(dict.fromkeys(runs)),
        grace_s=grace_s,
        stale_s=stale_s,
        lists=lists,
        seen=dict(seen or {}),
        deleting=Deleting(repo=repo, lists=lists, stop=stop, measure=measure),
        time=StoreTime(repo),
    ).run()


@dataclass(slots=True, kw_only=True)
class _Sweep:
    repo: Repository
    whole: bool
    targets: tuple[str, ...]
    grace_s: float
    stale_s: float
    lists: PackLists
    seen: dict[str, Seen]
    deleting: Deleting
    time: StoreTime
    frozen: dict[Place, Grave] = field(default_factory=dict)
    waiting: set[Place] = field(default_factory=set)
    raised: set[Place] = field(default_factory=set)
    swept: list[Place] = field(default_factory=list)
    packs: dict[str, int] = field(default_factory=dict)

    def run(self) -> Swept:
        self._freeze()
        if self.frozen:
            self._hold()
        families_ = self._scope()
        if self.whole:
            self.packs = {one.key: one.size for one in listed(self.repo.store, "packs/")}
            for key, size in self.packs.items():
                self.lists.learn_size(key, size)
        found = self._look(families_.runs)
        orphans = self._orphans(found) if self.whole else frozenset()
        if orphans:
            families_ = self._scope()
            found = self._look(families_.runs)
        self._delete(found, families_, orphans)
        for run in self.targets:
            tidy(self.repo, run, self.deleting, self.lists)
        return Swept(
            swept=tuple(self.swept),
            waiting=tuple(sorted(self.waiting & found.plans.keys())),
            undeleted=tuple(sorted(self.raised)),
            packs=self.deleting.packs,
            objects=self.deleting.objects,
            bytes=self.deleting.bytes,
        )

    def _freeze(self) -> None:
        """The pruned whose grace is over: none of them is ever referred to by a plan that is not there yet."""
        for run in self.targets:
            if run not in self.seen:
                done = frozenset(decided(self.repo, run)) if self.whole else None
                self.seen[run] = Seen(graves=graves(self.repo, run), decided=done)
            for save, grave in self.seen[run].graves.items():
                if self.time.passed(grave.since, self.grace_s):
                    self.frozen[run, save] = grave
                else:
                    self.waiting.add((run, save))

    def _hold(self) -> None:
        """Take out those that somebody holds, who came before their tomb: a tag brings its checkpoint back."""
        pinned = find_pinned(self.repo, self.time)
        for place in sorted(self.frozen.keys() & (pinned.read.keys() | pinned.tagged.keys())):
            if holds(self.repo, pinned, *place):
                self._raise(place)
            elif place in pinned.read:
                del self.frozen[place]
                self.waiting.add(place)

    def _raise(self, place: Place) -> bool:
        """Undelete it, unless its bytes may be gone; whether it stands again."""
        if raise_up(self.repo, self.frozen[place]):
            self._stands(place)
        return place in self.raised

    def _stands(self, place: Place) -> None:
        run, save = place
        del self.frozen[place]
        self.raised.add(place)
        known = self.seen[run]
        rest = {other: grave for other, grave in known.graves.items() if other != save}
        self.seen[run] = Seen(graves=rest, decided=known.decided)

    def _scope(self) -> Family:
        if self.whole:
            names = [one.run for one in all_runs(self.repo)]
            return Family(runs=tuple(dict.fromkeys((*self.targets, *names))), copied={})
        return families(self.repo, self.targets)

    def _look(self, runs: Sequence[str]) -> Look:
        return look(
            self.repo,
            runs,
            seen=self.seen,
            frozen=frozenset(self.frozen),
            lists=self.lists,
            time=self.time,
            stale_s=self.stale_s,
        )

    def _orphans(self, found: Look) -> frozenset[SaveId]:
        """The saves that no run knows and of whose packs some are not needed. No copy relies on them from here on."""
        known = found.homes()
        orphans = {
            save
            for key in self.packs
            if (save := save_of_pack(key)) is not None and save not in known and not found.needs(key)
        }
        for save in sorted(orphans):
            try:
                create_same(self.repo.store, orphan_key(save), b"{}")
            except AlreadyExists:
                continue
        return frozenset(orphans)

    def _delete(self, found: Look, scope: Family, orphans: frozenset[SaveId]) -> None:
        victims = self._victims(found)
        self._guard(victims, found)
        doomed = {
            place: self._parts(one) for place, one in victims.items() if self._doomed(place, one, found)
        }
        homes = found.homes()
        garbage = self._listed_garbage(doomed, found, homes, orphans)
        kept: set[Place] = set()
        covered: set[str] = set()
        for place in sorted(doomed):
            unneeded = [key for key in doomed[place] or () if not found.needs(key)]
            ours = {key for key in unneeded if self._may(save_of_pack(key), homes, scope)}
            foreign = set(unneeded) - ours - garbage
            garbage |= ours
            if foreign - covered or not self._may(place[1], homes, scope):
                kept.add(place)
                covered |= foreign
        self._delete_all(doomed, kept, garbage, found)

    def _victims(self, found: Look) -> dict[Place, Checkpoint | None]:
        """The dead of which something is left; None for those that were given up and have no manifest that counts."""
        victims: dict[Place, Checkpoint | None] = {}
        for run, save in sorted(found.plans):
            place = (run, save)
            if run not in self.targets or save not in found.decided[run]:
                continue
            if place in found.bases or (not self.whole and self.lists.is_left(place)):
                self.waiting |= {place} & self.frozen.keys()
                continue
            record = self.lists.decision(run, save)
            if record.state == "committed" and place in self.frozen:
                victims[place] = checkpoint_of(record, run, save)
            elif record.state == "aborted" and (not self.whole or save in (self.seen[run].decided or ())):
                victims[place] = None
        return victims

    def _guard(self, victims: dict[Place, Checkpoint | None], found: Look) -> None:
        """Undelete the newest of those that were verified, if no checkpoint that was is left; or the newest of all.

        Two prunes that saw different marks may have chosen so together; one alone never does.
        """
        for run in self.targets:
            ours = [one for one in victims.values() if one is not None and one.run == run]
            if not ours:
                continue
            marks = verified(self.repo, run)
            standing = found.standing[run]
            if standing and any(one.save in marks for one in standing):
                continue
            wanted = [one for one in ours if one.save in marks or not standing]
            for one in sorted(
                wanted, key=lambda one: (one.save in marks, one.attempt, one.step), reverse=True
            ):
                if self._raise((run, one.save)):
                    del victims[run, one.save]
                    found.live |= self.lists.packs(one)
                    break

    def _doomed(self, place: Place, one: Checkpoint | None, found: Look) -> bool:
        """Decide its fate. One that was undeleted, or whose fate cannot be read, is live."""
        if one is None:
            return True
        try:
            if doom(self.repo, self.frozen[place]):
                return True
            self._stands(place)
        except IntegrityError:
            self.waiting.add(place)
        found.live |= self.lists.packs(one)
        return False

    def _parts(self, one: Checkpoint | None) -> frozenset[str] | None:
        """The packs that a dead save refers to; None where only a list of all packs tells them.

        A manifest that is gone went after its packs.
        """
        try:
            return None if one is None else self.lists.packs(one)
        except MissingObject:
            return frozenset()
        except IntegrityError:
            return None

    def _listed_garbage(
        self,
        doomed: Mapping[Place, frozenset[str] | None],
        found: Look,
        homes: Mapping[SaveId, Sequence[str]],
        orphans: frozenset[SaveId],
    ) -> set[str]:
        """Packs of saves without a manifest, by their keys alone; of the whole store, all that is not needed."""
        if self.whole:
            dead = orphans | {
                save for save, runs in homes.items() if self._dead_in(runs, save, found, doomed)
            }
        else:
            dead = frozenset(save for (_, save), packs in doomed.items() if packs is None)
            if dead:
                self.packs = {one.key: one.size for one in listed(self.repo.store, "packs/")}
        for key, size in self.packs.items():
            self.lists.learn_size(key, size)
        return {key for key in self.packs if save_of_pack(key) in dead and not found.needs(key)}

    def _dead_in(
        self,
        runs: Sequence[str],
        save: SaveId,
        found: Look,
        doomed: Mapping[Place, frozenset[str] | None],
    ) -> bool:
        """Whether a save is dead, and was when the dead were frozen, in all runs that know it."""
        return all((run, save) in doomed or self._swept_before(run, save, found) for run in runs)

    def _swept_before(self, run: str, save: SaveId, found: Look) -> bool:
        """Whether a save has no plan any more and is dead: then only what came late is left of it."""
        if (
            (run, save) in found.plans or save not in (self.seen[run].decided or ())
            if run in self.seen
            else True
        ):
            return False
        if self.lists.decision(run, save).state == "aborted":
            return True
        grave = self.frozen.get((run, save))
        return grave is not None and doom(self.repo, grave)

    def _may(self, owner: SaveId | None, homes: Mapping[SaveId, Sequence[str]], scope: Family) -> bool:
        """Whether all was looked at that may refer to a save's packs: all runs, or the heirs of where it was born."""
        if owner is None:
            return False
        runs = [run for run in homes.get(owner, ()) if self.whole or run in self.targets]
        return any(self.whole or owner.attempt > scope.copied.get(run, 0) for run in runs)

    def _delete_all(self, doomed: Iterable[Place], kept: set[Place], garbage: set[str], found: Look) -> None:
        """Packs, then indexes, then manifests, then plans: each only when what goes before it is gone."""
        places = sorted(doomed)
        rest = {place: list(listed(self.repo.store, save_prefix(*place))) for place in places}
        manifests, others = [], []
        for place, objects in rest.items():
            for one in objects:
                is_manifest = one.key.startswith(f"{save_prefix(*place)}manifest.")
                if not is_manifest:
                    others.append((one.key, one.size))
                elif place not in kept:
                    manifests.append((one.key, one.size))
        plans = [(found.plans[place].key, found.plans[place].size) for place in places if place not in kept]
        done = (
            self.deleting.delete_packs(garbage)
            and self.deleting.delete_objects(others)
            and self.deleting.delete_objects(manifests)
            and self.deleting.delete_objects(plans)
        )
        for place in places:
            if done and place not in kept:
                self.swept.append(place)
                self.lists.forget(*place)
            else:
                self.waiting.add(place)
            if done and place in kept:
                self.lists.leave(place)
