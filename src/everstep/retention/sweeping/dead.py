"""The dead of some runs: frozen before anything else is looked at, less those that somebody holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from everstep.errors import IntegrityError, MissingObject
from everstep.format.ids import SaveId
from everstep.repository.catalogue import decided
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.fates import doom, raise_up
from everstep.repository.keys import sweep_key, sweeps_prefix
from everstep.repository.objects import listed
from everstep.repository.repository import Repository
from everstep.repository.tombs import Grave, graves, tombed
from everstep.repository.verified import verified
from everstep.retention.marking import PackLists
from everstep.retention.sweeping.looking import Look, Overtaken, Place, Seen
from everstep.retention.sweeping.pinned import find_pinned
from everstep.retention.sweeping.store_time import StoreTime

__all__ = ["Dead"]

Victims = dict[Place, Checkpoint | None]


@dataclass(slots=True, kw_only=True)
class Dead:
    """The pruned of the runs ``targets`` whose grace is over, with what is known of each run (``seen``).

    What was replaced (repacked) has no grace: there is nothing to undelete, its content stands.
    ``waiting`` are those that stay for now, ``raised`` those that were undeleted.
    """

    repo: Repository
    lists: PackLists
    time: StoreTime
    grace_s: float
    seen: dict[str, Seen]
    frozen: dict[Place, Grave] = field(default_factory=dict)
    waiting: set[Place] = field(default_factory=set)
    raised: set[Place] = field(default_factory=set)

    def freeze(self, targets: tuple[str, ...], *, given_up_too: bool) -> None:
        """Look for the pruned, and take out those that somebody holds, who came before their tomb.

        No plan that is not there yet refers to any of them. ``given_up_too``: also who was given up is known by now.
        """
        for run in targets:
            if run not in self.seen:
                done = frozenset(decided(self.repo, run)) if given_up_too else None
                self.seen[run] = Seen(graves=graves(self.repo, run), decided=done)
            young = []
            for save, grave in self.seen[run].graves.items():
                if self.time.passed(grave.since, self.grace_s):
                    self.frozen[run, save] = grave
                else:
                    young.append(grave)
            self._sort_out(run, young)
        if any(self.seen[run].graves for run in targets):
            self._hold()

    def _sort_out(self, run: str, young: list[Grave]) -> None:
        """Which of those in their grace cannot be undeleted all the same: a sweep began, or they were replaced."""
        begun = {found.key for found in listed(self.repo.store, sweeps_prefix(run))} if young else set()
        for grave in young:
            if sweep_key(run, grave.save, grave.number) in begun or self.lists.replaced(grave):
                self.frozen[run, grave.save] = grave
            else:
                self.waiting.add((run, grave.save))

    def _hold(self) -> None:
        """Undelete what a tag leads to, in its grace or not, and leave alone what is being read."""
        pinned = find_pinned(self.repo, self.time, {run: seen.graves for run, seen in self.seen.items()})
        for chain in pinned.chains:
            self._keep_end(chain)
        for place in sorted(self.frozen.keys() & pinned.read.keys()):
            del self.frozen[place]
            self.waiting.add(place)

    def _keep_end(self, chain: tuple[Place, ...]) -> None:
        """See to it that what a tag leads to stands; where its bytes may be gone, what was replaced by it."""
        run, save = chain[-1]
        if run not in self.seen:
            return
        if save not in self.seen[run].graves:
            if len(chain) > 1 and tombed(self.repo, run, save):
                raise Overtaken  # a page of the list was older than its tomb
            return
        for place in reversed(chain):
            if self._raise(place):
                return

    def guard(self, victims: Victims, found: Look) -> None:
        """Undelete the newest of those that were verified, if no checkpoint that was is left; or the newest of all.

        Two prunes that saw different marks may have chosen so together; one alone never does. What is believed to stand
        is looked at once more: it may have got its tomb just before one of the victims did.
        """
        for run in {place[0] for place, one in victims.items() if one is not None}:
            marks = verified(self.repo, run)
            standing = found.standing[run]
            if standing and not marks:
                continue
            relied = [one for one in _newest_first(standing) if one.save in marks]
            if relied:
                if tombed(self.repo, run, relied[0].save):
                    raise Overtaken
                continue
            ours = [one for one in victims.values() if one is not None and one.run == run]
            wanted = [one for one in ours if one.save in marks or not standing]
            for one in sorted(_newest_first(wanted), key=lambda one: one.save not in marks):
                if self._raise((run, one.save)):
                    del victims[run, one.save]
                    self._lives(one, found)
                    break

    def doom(self, place: Place, one: Checkpoint | None, found: Look) -> bool:
        """Decide that it is swept. One that was undeleted, or whose fate cannot be read, is live."""
        if one is None:
            return True  # given up: nothing can bring it back
        try:
            if doom(self.repo, self.frozen[place]):
                return True
            self._stands(place)
        except IntegrityError:
            self.waiting.add(place)
        self._lives(one, found)
        return False

    def gone_before(self, run: str, save: SaveId) -> bool:
        """Whether a save is dead of which there is no plan any more: what is left of it came late."""
        if run not in self.seen or save not in (self.seen[run].decided or ()):
            return False
        if self.lists.decision(run, save).state == "aborted":
            return True
        grave = self.frozen.get((run, save))
        return grave is not None and doom(self.repo, grave)

    def _lives(self, one: Checkpoint, found: Look) -> None:
        try:
            found.live |= self.lists.packs(one)
        except MissingObject as error:
            raise Overtaken from error

    def _raise(self, place: Place) -> bool:
        """Undelete it, unless its bytes may be gone; whether it stands again."""
        try:
            if not raise_up(self.repo, self.seen[place[0]].graves[place[1]]):
                return False
        except IntegrityError:
            return False
        self._stands(place)
        return True

    def _stands(self, place: Place) -> None:
        run, save = place
        self.frozen.pop(place, None)
        self.waiting.discard(place)
        self.raised.add(place)
        known = self.seen[run]
        rest: Mapping[SaveId, Grave] = {
            other: grave for other, grave in known.graves.items() if other != save
        }
        self.seen[run] = Seen(graves=rest, decided=known.decided)


def _newest_first(found: list[Checkpoint]) -> list[Checkpoint]:
    return sorted(found, key=lambda one: (one.attempt, one.step), reverse=True)
