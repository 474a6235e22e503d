"""Which checkpoints a policy keeps and which it deletes, with the reasons: a pure function."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, TypeGuard

from everstep.errors import UsageError
from everstep.repository.checkpoint import Checkpoint
from everstep.retention.budget import Held, allowed_bytes, size_text
from everstep.retention.candidate import Candidate
from everstep.retention.periods import Periodic, period
from everstep.retention.policy import Policy
from everstep.retention.rules import (
    Budget,
    KeepBest,
    KeepDaily,
    KeepEvery,
    KeepHourly,
    KeepLast,
    KeepMonthly,
    KeepWeekly,
    KeepWithin,
    Rule,
)

__all__ = ["Candidate", "Choice", "Verdict", "choose"]

_LONG: Final = 10**12

Reasons = dict[int, list[str]]
"""Why each is kept, by its place in the list that begins with the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a checkpoint stays, and all reasons, in words for people."""

    checkpoint: Checkpoint
    keep: bool
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a policy says of each checkpoint, newest first; ``notes`` is what it cannot do, and why."""

    verdicts: tuple[Verdict, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def kept(self) -> tuple[Checkpoint, ...]:
        """Those that stay."""
        return tuple(one.checkpoint for one in self.verdicts if one.keep)

    @property
    def deleted(self) -> tuple[Checkpoint, ...]:
        """Those that go."""
        return tuple(one.checkpoint for one in self.verdicts if not one.keep)


def choose(
    candidates: Sequence[Candidate],
    policy: Policy,
    *,
    now: float,
    pack_bytes: Mapping[str, int] | None = None,
    price_per_gb_month: float | None = None,
) -> Choice:
    """What the policy keeps of the checkpoints of one run, and what it deletes.

    The newest, the newest verified, the tagged ones and those being read are kept whatever the rules say.
    Newer is what has the higher attempt, and in it the higher step: clocks do not decide it. ``now`` is in
    seconds since 1970; ``pack_bytes`` are the sizes of the packs that the candidates name.

    Raises `UsageError` for a metric that no checkpoint has, and for money without a price.
    """
    ordered = sorted(candidates, key=_newest_first)
    protected = _protections(ordered)
    reasons: Reasons = {at: list(said) for at, said in protected.items()}
    for rule in policy.keeping:
        for at, said in _kept_by(rule, ordered, now):
            reasons.setdefault(at, []).append(said)
    if not policy.keeping:
        words = [str(budget) for budget in policy.budgets] or ["all"]
        for at in range(len(ordered)):
            reasons.setdefault(at, []).extend(words)
    gone, notes = _over_budget(
        ordered, reasons, protected, policy.budgets, pack_bytes=pack_bytes or {}, price=price_per_gb_month
    )
    return Choice(
        verdicts=tuple(
            Verdict(
                checkpoint=one.checkpoint,
                keep=at in reasons and at not in gone,
                reasons=tuple(gone.get(at) or reasons.get(at) or ["no rule keeps it"]),
            )
            for at, one in enumerate(ordered)
        ),
        notes=notes,
    )


def _newest_first(candidate: Candidate) -> tuple[int, int, str]:
    save = candidate.checkpoint.save
    return (-save.attempt, -save.step, save.nonce)


def _protections(ordered: Sequence[Candidate]) -> Reasons:
    """Those that no rule and no budget may take, and why."""
    found: Reasons = {}
    if ordered:
        found[0] = ["newest"]
    for at, one in enumerate(ordered):
        if one.verified:
            found.setdefault(at, []).append("newest verified")
            break
    for at, one in enumerate(ordered):
        if one.checkpoint.tags:
            found.setdefault(at, []).append(f"tagged {', '.join(one.checkpoint.tags)}")
        if one.pinned_by:
            found.setdefault(at, []).append("being read")
    return found


def _kept_by(rule: Rule, ordered: Sequence[Candidate], now: float) -> Iterator[tuple[int, str]]:
    """The places of those that the rule keeps, with its words."""
    match rule:
        case KeepLast():
            yield from ((at, f"{rule} ({_nth(at)})") for at in range(min(rule.n, len(ordered))))
        case KeepEvery():
            yield from _every(rule, ordered)
        case KeepWithin():
            yield from _within(rule, ordered, now)
        case KeepBest():
            yield from _best(rule, ordered)
        case KeepHourly() | KeepDaily() | KeepWeekly() | KeepMonthly():
            yield from _periods(rule, ordered, now)
        case _:
            return


def _every(rule: KeepEvery, ordered: Sequence[Candidate]) -> Iterator[tuple[int, str]]:
    last: dict[
        int, int
    ] = {}  # by multiple: the place of the highest step at it or below, of the newest attempt
    for at, one in enumerate(ordered):
        multiple = -(-one.checkpoint.step // rule.steps) * rule.steps
        standing = last.get(multiple)
        if standing is None or one.checkpoint.step > ordered[standing].checkpoint.step:
            last[multiple] = at
    for multiple, at in last.items():
        exact = ordered[at].checkpoint.step == multiple
        yield at, str(rule) if exact else f"{rule} (last before {multiple})"


def _within(rule: KeepWithin, ordered: Sequence[Candidate], now: float) -> Iterator[tuple[int, str]]:
    if not ordered:
        return
    # Of two clocks the earlier one: a clock that runs ahead, here or where it was saved, deletes nothing more.
    since = min(now, ordered[0].checkpoint.created) - rule.seconds
    yield from ((at, str(rule)) for at, one in enumerate(ordered) if not one.checkpoint.created < since)


def _periods(rule: Periodic, ordered: Sequence[Candidate], now: float) -> Iterator[tuple[int, str]]:
    newest: dict[str, int] = {}
    for at, one in enumerate(ordered):
        newest.setdefault(period(rule, one.checkpoint.created), at)
    today = period(rule, now)
    # What lies in the future of this clock (one of the two is wrong) stays, and takes no place of another.
    ahead = [name for name in newest if name > today]
    behind = sorted((name for name in newest if name <= today), reverse=True)
    for name in ahead + behind[: rule.n]:
        yield newest[name], f"{rule} ({name})"


def _best(rule: KeepBest, ordered: Sequence[Candidate]) -> Iterator[tuple[int, str]]:
    numbers: list[tuple[int | float, int]] = []
    for at, one in enumerate(ordered):
        value = one.checkpoint.metrics.get(rule.metric)
        if _is_number(value):
            numbers.append((value, at))
    if ordered and not numbers:
        raise _unknown_metric(rule, ordered)
    finite = [(value, at) for value, at in numbers if isinstance(value, int) or math.isfinite(value)]
    # of equal ones the older first, which stands further down
    finite.sort(key=lambda pair: (pair[0] if rule.mode == "min" else -pair[0], -pair[1]))
    for place, (value, at) in enumerate(finite[: rule.n]):
        yield at, f"{rule} ({_nth(place)}: {_figure(value)})"


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _unknown_metric(rule: KeepBest, ordered: Sequence[Candidate]) -> UsageError:
    run = ordered[0].checkpoint.run
    has = [one.checkpoint.metrics for one in ordered]
    numeric = sorted({name for metrics in has for name, value in metrics.items() if _is_number(value)})
    if any(rule.metric in metrics for metrics in has):
        what = f"the metric {rule.metric!r} is no number in any checkpoint of run {run!r}"
    else:
        what = f"no checkpoint of run {run!r} has the metric {rule.metric!r}"
    return UsageError(
        f"{what}, which '{rule}' asks for",
        hint=f"metrics that checkpoints have: {', '.join(numeric)}"
        if numeric
        else "no checkpoint has any: give them when saving, as save(step, state, metrics={...}), or with log()",
        metric=rule.metric,
        metrics=numeric,
    )


def _over_budget(
    ordered: Sequence[Candidate],
    reasons: Reasons,
    protected: Collection[int],
    budgets: Sequence[Budget],
    *,
    pack_bytes: Mapping[str, int],
    price: float | None,
) -> tuple[Reasons, tuple[str, ...]]:
    """Those that must go for the budgets, and why; and which budgets cannot be met."""
    gone: Reasons = {}
    words = {str(budget) for budget in budgets}
    notes: list[str] = []
    for budget in budgets:
        allowed = allowed_bytes(budget, price)
        held = Held([one for at, one in enumerate(ordered) if at in reasons and at not in gone], pack_bytes)
        for at in reversed(range(len(ordered))):
            if held.bytes <= allowed:
                break
            if at in reasons and at not in protected and at not in gone:
                gone[at] = [
                    f"{budget}: {size_text(held.bytes)} with it",
                    *(f"{said} would keep it" for said in reasons[at] if said not in words),
                ]
                held.drop(ordered[at])
        if held.bytes > allowed:
            note = f"{budget} cannot be met: what is never deleted holds {size_text(held.bytes)}"
            notes.append(note)
            for at in protected:
                reasons[at].append(note)
    return gone, tuple(notes)


def _nth(place: int) -> str:
    """First, second, third: ``1st``, ``2nd``, ``3rd``, ``11th``; a place counts from 0."""
    number = place + 1
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if number % 100 in {11, 12, 13} else endings.get(number % 10, 'th')}"


def _figure(value: float) -> str:
    if isinstance(value, int):
        return str(value) if abs(value) < _LONG else f"{Decimal(value):.4g}"
    return f"{value:.4g}"
