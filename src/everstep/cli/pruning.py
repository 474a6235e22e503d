"""The steps of ``everstep prune``: which runs by which policy, what that gives up, and the deleting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from everstep.cli import places
from everstep.errors import EverstepError, RunNotFound, UsageError
from everstep.retention.marking import PackLists
from everstep.retention.policy import Policy, parse_keep
from everstep.retention.prune import Pruned, PrunePlan, plan_prune, prune
from everstep.retention.standing import standing_policy
from everstep.retention.sweep import Swept, sweep
from everstep.store.unchanged import Unchanged

if TYPE_CHECKING:
    from everstep.events import Listener
    from everstep.repository.checkpoint import Checkpoint
    from everstep.repository.repository import Repository
    from everstep.retention.checking import Check
    from everstep.retention.repack import Repacked

__all__ = ["Pruning", "Wanted", "wanted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Runs and their policies, in order; ``drop`` has checkpoints to give up by name, by run.

    ``whole`` when nothing was named: then the whole store is swept, and a run that is refused stops no other.
    ``without`` are runs that have no policy, of which everything stays.
    """

    policies: dict[str, Policy]
    drop: dict[str, tuple[Checkpoint, ...]]
    without: tuple[str, ...]
    whole: bool


def wanted(repository: Repository, words: Sequence[str], run: str | None, keep: str | None) -> Wanted:
    """What RUN and RUN@STEP arguments, ``--run`` and ``--keep`` ask for. Raises `UsageError`, `NotFound`."""
    policy = None if keep is None else parse_keep(keep)
    words = words or ([run] if run else [])
    if not words:
        return _all_runs(repository, policy)
    policies: dict[str, Policy] = {}
    drop: dict[str, tuple[Checkpoint, ...]] = {}
    for word in words:
        if word.startswith(("@", "tag:")) or "@" in word:
            found = places.selected(repository, word, run)
            drop[found.run] = (*drop.get(found.run, ()), found)
        else:
            policies[word] = policy or _own(repository, word)
    by_name = drop.keys() - policies.keys()
    if by_name and policy is not None:
        named = next(iter(by_name))
        raise UsageError(
            f"--keep is for runs, and {drop[named][0]} is given up by name",
            hint=f"leave --keep out, or write {named} to prune the run as well",
        )
    everything = Policy()
    return Wanted(
        policies=policies | dict.fromkeys(sorted(by_name), everything),
        drop=drop,
        without=(),
        whole=False,
    )


def _all_runs(repository: Repository, policy: Policy | None) -> Wanted:
    from everstep.repository.runs import runs

    names = [record.run for record in runs(repository)]
    found = {name: policy or standing_policy(repository, name) for name in names}
    return Wanted(
        policies={name: one for name, one in found.items() if one is not None and not one.keeps_all},
        drop={},
        without=tuple(name for name, one in found.items() if one is None or one.keeps_all),
        whole=True,
    )


def _own(repository: Repository, run: str) -> Policy:
    try:
        policy = standing_policy(repository, run)
    except RunNotFound as error:
        raise places.with_near_runs(repository, error, run) from None
    if policy is None or policy.keeps_all:
        raise UsageError(
            f"run {run!r} has no retention policy: it keeps everything",
            hint=f'say what stays, as: everstep prune {run} --keep "last 3"; or give up one by name: {run}@STEP',
            run=run,
        )
    return policy


class Pruning:
    """One prune of some runs, or of the whole store: planned, then done. A dry run cannot change the store."""

    def __init__(
        self,
        repository: Repository,
        asked: Wanted,
        *,
        grace_s: float,
        price_per_gb_month: float | None,
        dry_run: bool,
    ) -> None:
        self._repository = replace(repository, store=Unchanged(repository.store)) if dry_run else repository
        self._grace_s = grace_s
        self._price = price_per_gb_month
        self._lists = PackLists(self._repository)
        self.asked = asked
        self.plans: list[PrunePlan] = []
        self.refused: dict[str, EverstepError] = {}
        self.pruned: list[Pruned] = []
        self.swept: list[Swept] = []
        self.repacked: Repacked | None = None

    def plan(self, *, check: Check, listener: Listener) -> None:
        """Choose. Of the whole store a run that is refused, as its newest checkpoint is damaged, stops no other."""
        for run, policy in self.asked.policies.items():
            try:
                self.plans.append(
                    plan_prune(
                        self._repository,
                        run,
                        policy,
                        now=self._repository.clock(),
                        check=check,
                        drop=self.asked.drop.get(run, ()),
                        listener=listener,
                        lists=self._lists,
                        price_per_gb_month=self._price,
                    )
                )
            except RunNotFound as error:
                raise places.with_near_runs(self._repository, error, run) from None
            except EverstepError as error:
                if not self.asked.whole or error.retryable:
                    raise
                self.refused[run] = error

    def do(self, *, repack: bool, listener: Listener) -> None:
        """Give the victims up, sweep what was given up before the grace; with ``repack`` rewrite and sweep again."""
        for plan in self.plans:
            if plan.victims or not self.asked.whole:
                self.pruned.append(prune(self._repository, plan, grace_s=self._grace_s, lists=self._lists))
        if self.asked.whole:
            self._sweep()
        if repack:
            from everstep.retention.repack import repack as rewrite

            self.repacked = rewrite(self._repository, self._names(), listener=listener, lists=self._lists)
            if self.repacked.packs:
                self._sweep()

    def repackable(self) -> int | None:
        """The bytes that a repack would free after the prune; of more runs than one, those of the whole store."""
        from everstep.retention.space import space

        names = list(self.asked.policies)
        one = names[0] if not self.asked.whole and len(names) == 1 else None
        victims = [checkpoint for plan in self.plans for checkpoint in plan.victims]
        return space(self._repository, one, deep=True, without=victims, lists=self._lists).sparse

    def _names(self) -> list[str] | None:
        return None if self.asked.whole else list(self.asked.policies)

    def _sweep(self) -> None:
        self.swept.append(sweep(self._repository, self._names(), grace_s=self._grace_s, lists=self._lists))
