"""How many checkpoints a retention keeps, found by applying it to a history of saves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

from everstep.format.ids import SaveId
from everstep.repository.checkpoint import Checkpoint
from everstep.retention.candidate import Candidate
from everstep.retention.choice import choose
from everstep.retention.policy import Policy
from everstep.retention.rules import (
    KeepBest,
    KeepDaily,
    KeepHourly,
    KeepLast,
    KeepMonthly,
    KeepTagged,
    KeepVerified,
    KeepWeekly,
    KeepWithin,
    Rule,
)

__all__ = ["History"]

_BEGIN = 1_767_571_200.0
"""A Monday, at midnight UTC."""
_PERIODS: dict[type, float] = {
    KeepHourly: 3600.0,
    KeepDaily: 86400.0,
    KeepWeekly: 7 * 86400.0,
    KeepMonthly: 31 * 86400.0,
}
_MOST = 20_000
"""A history of more saves is cut to its last ones."""


class History:
    """The saves of ``horizon_s`` seconds, one each ``interval_s``, of steps that take ``step_s``.

    ``state_bytes`` is what a checkpoint refers to, ``new_bytes`` what each adds. Metrics are drawn by lot, so that the
    best are not the newest; nothing is tagged or verified.
    """

    def __init__(
        self,
        *,
        interval_s: float,
        horizon_s: float,
        step_s: float,
        state_bytes: int,
        new_bytes: int,
        seed: int = 0,
    ) -> None:
        self._interval_s = interval_s
        self._step_s = step_s
        self._state_bytes = state_bytes
        self._new_bytes = new_bytes
        self._saves = max(1, int(horizon_s // interval_s))
        self._seed = seed

    def kept(self, policy: Policy, *, price_per_gb_month: float | None) -> int:
        """How many are kept at the end. Raises what `choose` raises."""
        if policy.keeps_all:
            return self._saves
        metrics = tuple(sorted({rule.metric for rule in policy.keeping if isinstance(rule, KeepBest)}))
        numbers = range(self._saves - min(self._needed(policy), self._saves, _MOST) + 1, self._saves + 1)
        candidates = self._candidates(numbers, metrics, packs=bool(policy.budgets))
        chosen = choose(
            candidates,
            policy,
            now=_BEGIN + self._saves * self._interval_s,
            pack_bytes=self._pack_bytes(numbers) if policy.budgets else {},
            price_per_gb_month=price_per_gb_month,
        )
        return len(chosen.kept)

    def _needed(self, policy: Policy) -> int:
        """So many of the newest saves decide: older ones no rule keeps."""
        if policy.budgets:
            return self._saves
        return max(1, *(self._reach(rule) for rule in policy.keeping))

    def _reach(self, rule: Rule) -> int:
        match rule:
            case KeepLast():
                return rule.n
            case KeepTagged() | KeepVerified():
                return 1
            case KeepWithin():
                seconds = rule.seconds
            case KeepHourly() | KeepDaily() | KeepWeekly() | KeepMonthly():
                seconds = rule.n * _PERIODS[type(rule)]
            case _:
                return self._saves
        return min(self._saves, math.ceil(seconds / self._interval_s) + 1 + getattr(rule, "n", 0))

    def _candidates(self, numbers: range, metrics: Sequence[str], *, packs: bool) -> list[Candidate]:
        lots = Random(self._seed)  # noqa: S311 - invented metrics, which must come out the same again
        step = max(1, round(self._interval_s / self._step_s))
        return [
            Candidate(
                checkpoint=Checkpoint(
                    run="planned",
                    save=SaveId(step=number * step, attempt=1, nonce=f"{number:032x}"),
                    created=_BEGIN + number * self._interval_s,
                    bytes=self._state_bytes,
                    stored_bytes=self._new_bytes,
                    world=1,
                    metrics={name: lots.random() for name in metrics},
                    tags=(),
                    manifest="",
                    manifest_size=0,
                    forked_from=None,
                ),
                packs=frozenset({"unchanged", str(number)}) if packs else None,
            )
            for number in numbers
        ]

    def _pack_bytes(self, numbers: range) -> dict[str, int]:
        """Each checkpoint has what it adds, and shares the rest with all."""
        own = {str(number): self._new_bytes for number in numbers}
        return {"unchanged": self._state_bytes - self._new_bytes, **own}
