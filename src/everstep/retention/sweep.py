"""The sweep: deletes the bytes of dead saves that nothing live needs. The order of its steps is the proof:
freeze the dead; then tags and readers, heirs, plans, commit records; then fates; then packs, what tells of them last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from everstep.errors import IntegrityError, MissingObject, StoreUnavailable
from everstep.format.ids import SaveId
from everstep.repository.checkpoint import Checkpoint, checkpoint_of
from everstep.repository.heirs import Family, families
from everstep.repository.objects import listed
from everstep.repository.repository import Repository
from everstep.repository.runs import runs as all_runs
from everstep.repository.stale import STALE_S
from everstep.repository.tombs import graves
from everstep.retention.marking import PackLists
from everstep.retention.sweeping.dead import Dead
from everstep.retention.sweeping.deleting import Deleting
from everstep.retention.sweeping.garbage import Garbage, find_orphans
from everstep.retention.sweeping.looking import Look, Overtaken, Place, Seen, look
from everstep.retention.sweeping.store_time import StoreTime
from everstep.retention.sweeping.tidying import tidy, tidy_pins

__all__ = ["Swept", "never", "sweep"]

_TIMES = 8
"""Looks before it is given up because other prunes go on all the time."""


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
    deleting = Deleting(repo=repo, lists=lists, stop=stop, measure=measure)
    undeleted: set[Place] = set()
    for patience in range(_TIMES, 0, -1):
        time = StoreTime(repo)
        dead = Dead(
            repo=repo,
            lists=lists,
            time=time,
            grace_s=grace_s,
            seen=dict(seen or {}) if patience == _TIMES else {},
            raised=undeleted,
        )
        try:
            return _sweep(repo, runs, dead=dead, lists=lists, time=time, deleting=deleting, stale_s=stale_s)
        except Overtaken as error:
            if patience == 1:
                raise StoreUnavailable(
                    f"other prunes of {repo.store.url} went on all the time; nothing was deleted",
                    hint="prune again when they are done",
                    store=repo.store.url,
                ) from error
    raise AssertionError("the last time raises")


def _sweep(
    repo: Repository,
    runs: Sequence[str] | None,
    *,
    dead: Dead,
    lists: PackLists,
    time: StoreTime,
    deleting: Deleting,
    stale_s: float,
) -> Swept:
    whole = runs is None
    targets = tuple(one.run for one in all_runs(repo)) if runs is None else tuple(dict.fromkeys(runs))
    dead.freeze(targets, given_up_too=whole)
    packs: dict[str, int] = {}
    if whole:  # before the plans, so that of each pack that is seen the plan is
        packs = {one.key: one.size for one in time.saw(listed(repo.store, "packs/"))}

    def looked() -> tuple[Look, Family]:
        scope, seen = _scope(repo, targets, dead.seen, whole=whole)
        found = look(
            repo,
            scope.runs,
            seen=seen,
            frozen=frozenset(dead.frozen),
            lists=lists,
            time=time,
            stale_s=stale_s,
        )
        return found, scope

    found, scope = looked()
    orphans: frozenset[SaveId] = frozenset()
    if whole and (orphans := find_orphans(repo, packs, found)):
        found, scope = looked()
    victims = _victims(found, targets, dead, lists, whole=whole)
    dead.guard(victims, found)
    doomed = {place: _packs(one, lists) for place, one in victims.items() if dead.doom(place, one, found)}
    garbage = Garbage(
        repo=repo,
        found=found,
        targets=targets,
        copied=None if whole else scope.copied,
        lists=lists,
        packs=packs,
        orphans=orphans,
        gone_before=dead.gone_before,
    )
    swept, left = garbage.delete(doomed, deleting)
    dead.waiting |= left
    for run in targets:
        tidy(repo, run, deleting, lists)
    if whole:
        tidy_pins(repo, time, deleting)
    return Swept(
        swept=swept,
        waiting=tuple(sorted(dead.waiting & found.plans.keys())),
        undeleted=tuple(sorted(dead.raised)),
        packs=deleting.packs,
        objects=deleting.objects,
        bytes=deleting.bytes,
    )


def _scope(
    repo: Repository, targets: tuple[str, ...], known: Mapping[str, Seen], *, whole: bool
) -> tuple[Family, Mapping[str, Seen]]:
    """The runs that may refer to packs of the targets, by what is there now, after the freeze; what is known of them.

    The pruned of each run are listed before its heirs: a fork of one that was pruned afterwards is seen, or it has seen
    the tomb. Of a run that is newer than the first look nothing is known.
    """
    seen = dict(known)
    if whole:
        names = [one.run for one in all_runs(repo)]
        for run in names:
            seen.setdefault(run, Seen(graves={}))
        return Family(runs=tuple(dict.fromkeys((*targets, *names))), copied={}), seen

    def before(run: str) -> None:
        if run not in seen:
            seen[run] = Seen(graves=graves(repo, run))

    return families(repo, targets, before), seen


def _victims(
    found: Look, targets: tuple[str, ...], dead: Dead, lists: PackLists, *, whole: bool
) -> dict[Place, Checkpoint | None]:
    """The dead of which something is left; None for those that were given up and have no manifest that counts.

    What a save under way names as its base stays as it is: a later sweep must learn from it which packs are needed.
    """
    victims: dict[Place, Checkpoint | None] = {}
    for run, save in sorted(found.plans):
        place = (run, save)
        if run not in targets or save not in found.decided[run]:
            continue
        if place in found.bases or (not whole and lists.is_left(place)):
            dead.waiting |= {place} & dead.frozen.keys()
            continue
        record = lists.decision(run, save)
        if record.state == "committed" and place in dead.frozen:
            victims[place] = checkpoint_of(record, run, save)
        elif record.state == "aborted" and (not whole or save in (dead.seen[run].decided or ())):
            victims[place] = None
    return victims


def _packs(one: Checkpoint | None, lists: PackLists) -> frozenset[str] | None:
    """The packs that a dead save refers to; None where only their own names tell them.

    A manifest that is gone went after its packs.
    """
    try:
        return None if one is None else lists.packs(one)
    except MissingObject:
        return frozenset()
    except IntegrityError:
        return None
