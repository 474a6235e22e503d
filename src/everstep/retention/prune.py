"""Pruning a run: what its policy gives up gets a tomb, then what nothing live needs is swept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from everstep.errors import IntegrityError, StoreUnavailable, UsageError
from everstep.events import Listener, silent
from everstep.format.ids import SaveId
from everstep.repository.catalogue import decided
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.heirs import family
from everstep.repository.keys import save_of_pack
from everstep.repository.repository import Repository
from everstep.repository.runs import find_run
from everstep.repository.tombs import Grave, bury, graves
from everstep.repository.verified import verified
from everstep.retention.checking import Check, check_whole
from everstep.retention.choice import Candidate, Choice, Verdict, choose
from everstep.retention.marking import PackLists
from everstep.retention.policy import Policy
from everstep.retention.sweep import Swept, never, sweep
from everstep.retention.sweeping.looking import Overtaken, Place, Seen
from everstep.retention.sweeping.pinned import Pinned, find_pinned
from everstep.retention.sweeping.store_time import StoreTime

__all__ = ["ASKED", "PrunePlan", "Pruned", "plan_prune", "prune"]

ASKED = "asked for"
_TIMES = 8
"""So often a plan is made again because another prune went on meanwhile."""
"""Why a checkpoint goes that people named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunePlan:
    """What a prune would do. ``frees_bytes`` is what the store would lose once nothing is in its grace.

    It is None when it was not asked for, and where a checkpoint that stays cannot be read. ``seen`` and ``why``
    are for `prune`.
    """

    run: str
    choice: Choice
    victims: tuple[Checkpoint, ...]
    frees_bytes: int | None
    seen: Seen = field(repr=False)
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What a prune did: ``tombed`` are the checkpoints that it gave up, the rest is as in `Swept`."""

    tombed: tuple[Checkpoint, ...] = ()
    swept: tuple[Place, ...] = ()
    waiting: tuple[Place, ...] = ()
    undeleted: tuple[Place, ...] = ()
    packs: int = 0
    objects: int = 0
    bytes: int = 0


def plan_prune(
    repo: Repository,
    run: str,
    policy: Policy,
    *,
    now: float,
    check: Check = "light",
    drop: Sequence[Checkpoint] = (),
    listener: Listener = silent,
    lists: PackLists | None = None,
    measure: bool = True,
    price_per_gb_month: float | None = None,
) -> PrunePlan:
    """What the policy gives up of a run, and what of ``drop`` besides. Nothing is written but a mark of verification.

    Before anything can be given up the newest checkpoint is checked: ``light`` looks whether its objects are there with
    their sizes, ``full`` reads every byte. ``now`` is in seconds since 1970. Raises `RunNotFound`, `UsageError` for
    what may not be dropped, an `IntegrityError` naming the newest checkpoint when it is damaged, and `StoreUnavailable`
    when other prunes gave up what was the newest here again and again, while it was looked at.
    """
    known = lists or PackLists(repo)
    for _ in range(_TIMES):
        try:
            return _planned(
                repo,
                run,
                policy,
                now=now,
                check=check,
                drop=drop,
                listener=listener,
                lists=known,
                measure=measure,
                price_per_gb_month=price_per_gb_month,
            )
        except Overtaken:
            continue
    raise StoreUnavailable(
        f"other prunes of run {run!r} went on all the time; nothing was deleted",
        hint="prune again when they are done",
        run=run,
    )


def _planned(
    repo: Repository,
    run: str,
    policy: Policy,
    *,
    now: float,
    check: Check,
    drop: Sequence[Checkpoint],
    listener: Listener,
    lists: PackLists,
    measure: bool,
    price_per_gb_month: float | None,
) -> PrunePlan:
    marks = verified(repo, run)  # before the tombs: of two prunes that chose by different marks one finds out
    dead = graves(repo, run)
    done = frozenset(decided(repo, run))
    if not done:
        find_run(repo, run)
    standing = lists.committed(run, _newest_first(done - dead.keys()))
    pinned = find_pinned(repo, StoreTime(repo), {run: dead})
    groups = _same(standing)
    budgets = bool(policy.budgets)
    candidates = [_candidate(group, marks, pinned, lists, budgets=budgets) for group in groups]
    packs = frozenset[str]().union(*(one.packs or () for one in candidates))
    choice = choose(
        candidates,
        policy,
        now=now,
        pack_bytes=lists.sizes(packs) if budgets else {},
        price_per_gb_month=price_per_gb_month,
    )
    choice = _dropped(run, choice, drop)
    gone = {one.save for one in choice.deleted}
    victims = [one for group in groups if group[0].save in gone for one in group]
    if victims:
        check_whole(repo, candidates[0].checkpoint, check, lists=lists, listener=listener)
    stay = [one for one in standing if one not in victims]
    return PrunePlan(
        run=run,
        choice=choice,
        victims=tuple(victims),
        frees_bytes=_frees(repo, run, victims, stay, done=done, lists=lists) if measure else None,
        seen=Seen(graves=dead, decided=done),
        why=policy.text(),
    )


def prune(
    repo: Repository,
    plan: PrunePlan,
    *,
    grace_s: float,
    stop: Callable[[], bool] = never,
    measure: bool = True,
    lists: PackLists | None = None,
) -> Pruned:
    """Give the plan's victims up, then sweep what was given up at least ``grace_s`` ago by the store's clock.

    Others are told at once; within the grace a checkpoint can be undeleted. ``stop`` is asked between requests.
    """
    lists = lists or PackLists(repo)
    if not plan.victims and lists.is_clean(plan.run, plan.seen.graves.keys()):
        return Pruned()
    buried: dict[SaveId, Grave] = dict(plan.seen.graves)
    asked = {one.checkpoint.save for one in plan.choice.verdicts if one.reasons == (ASKED,)}
    tombed = []
    for one in plan.victims:
        if stop():
            break
        why = ASKED if one.save in asked else plan.why
        buried[one.save] = bury(repo, plan.run, one.save, why=why)
        tombed.append(one)
    seen = Seen(graves=buried, decided=plan.seen.decided)
    done: Swept = sweep(
        repo,
        (plan.run,),
        grace_s=grace_s,
        stop=stop,
        measure=measure,
        lists=lists,
        seen={plan.run: seen},
    )
    if not done.waiting and not done.undeleted:
        lists.clean(plan.run, buried.keys())
    return Pruned(
        tombed=tuple(one for one in tombed if (one.run, one.save) not in done.undeleted),
        swept=done.swept,
        waiting=done.waiting,
        undeleted=done.undeleted,
        packs=done.packs,
        objects=done.objects,
        bytes=done.bytes,
    )


def _newest_first(saves: Iterable[SaveId]) -> list[SaveId]:
    return sorted(saves, key=lambda save: (-save.attempt, -save.step, save.nonce))


def _same(standing: Sequence[Checkpoint]) -> list[list[Checkpoint]]:
    """Checkpoints with those that they replace (repacked): one thing to a policy. The last one stands for all."""
    later = {one.replaces: one.save for one in standing if one.replaces}
    groups: dict[SaveId, list[Checkpoint]] = {}
    for one in standing:
        name = one.save
        while (after := later.get(str(name))) is not None:
            name = after
        groups.setdefault(name, []).append(one)
    return [sorted(group, key=lambda one: one.save != name) for name, group in groups.items()]


def _candidate(
    group: Sequence[Checkpoint],
    marks: frozenset[SaveId],
    pinned: Pinned,
    lists: PackLists,
    *,
    budgets: bool,
) -> Candidate:
    places = [(one.run, one.save) for one in group]
    names = {name for place in places for name in pinned.tagged.get(place, ())}
    return Candidate(
        checkpoint=replace(group[0], tags=tuple(sorted(names))),
        verified=any(one.save in marks for one in group),
        pinned_by=tuple(owner for place in places for owner in pinned.read.get(place, ())),
        packs=_packs(group, lists) if budgets else None,
    )


def _packs(checkpoints: Iterable[Checkpoint], lists: PackLists) -> frozenset[str] | None:
    """All packs that these need; None where one of them cannot be read."""
    try:
        return frozenset[str]().union(*(lists.packs(one) for one in checkpoints))
    except IntegrityError:
        return None


def _dropped(run: str, choice: Choice, drop: Sequence[Checkpoint]) -> Choice:
    """The choice, with what people asked to give up."""
    wanted = {one.save for one in drop}
    verdicts = []
    for verdict in choice.verdicts:
        one = verdict.checkpoint
        if one.save not in wanted or not verdict.keep:
            verdicts.append(verdict)
            continue
        for reason in verdict.reasons:
            if reason.startswith(("newest", "tagged", "being read")):
                raise UsageError(
                    f"{one} cannot be pruned: it is {reason}",
                    hint="the newest, the newest verified, and what is tagged or being read stay",
                    run=run,
                    step=one.step,
                )
        verdicts.append(Verdict(checkpoint=one, keep=False, reasons=(ASKED,)))
    return replace(choice, verdicts=tuple(verdicts))


def _frees(
    repo: Repository,
    run: str,
    victims: Sequence[Checkpoint],
    stay: Sequence[Checkpoint],
    *,
    done: frozenset[SaveId],
    lists: PackLists,
) -> int | None:
    """The bytes of packs, indexes and manifests that only victims need: no checkpoint of this run, and of no heir.

    Packs that another run's saves wrote are not counted: only a sweep of the whole store deletes them. What a damaged
    victim has is not counted either. None where one that stays is damaged: then nothing is swept.
    """
    if not victims:
        return 0
    others = [heir for heir in family(repo, run) if heir != run]
    alive = [
        lists.committed(heir, frozenset(decided(repo, heir)) - graves(repo, heir).keys()) for heir in others
    ]
    needed = _packs([*stay, *(one for heir in alive for one in heir)], lists)
    if needed is None:
        return None
    whole = [one for one in victims if _packs([one], lists) is not None]
    gone = {key for one in whole for key in lists.packs(one) - needed if save_of_pack(key) in done}
    small = sum(one.manifest_size + sum(ref.size for ref in lists.parts(one).indexes) for one in whole)
    return small + sum(lists.sizes(gone).values())
