"""The rows of a plan, and the pair that is recommended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from everstep.cadence.expectation import expect
from everstep.cadence.outages import Exponential, Replay
from everstep.cadence.simulate import Outcome, simulate
from everstep.errors import UsageError
from everstep.planner.costs import store_cost
from everstep.planner.kept import History
from everstep.planner.question import Question

__all__ = ["Answer", "Brings", "Row", "answer"]

_OUTAGES = 4000
"""A model with memory is played for so many outages."""
_ROUNDS, _ROWS = 20, 200_000
"""A trace is played so often, each time with other lots; a long one as often as comes to so many rows."""
_MONTH_H = 730.0
_LEAST_KEPT = 2
"""Fewer checkpoints leave nothing to fall back on when the newest is damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brings:
    """What an interval brings: shares of the time with enough machines, and what an outage loses.

    ``goodput`` is kept work, ``stalled`` and ``slowed`` what saves cost, ``lost`` work done again, ``down`` restarts
    and last saves. ``outages_per_s`` counts all outages. ``waiting`` is the share of all time with too few machines.
    """

    goodput: float
    stalled: float
    slowed: float
    lost: float
    down: float
    lost_per_outage_s: float
    outages_per_s: float
    waiting: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An interval with a retention: what it brings, what it keeps, and dollars a month.

    ``useful_hour`` is what an hour of kept work costs in all, None where no price of machines is known. ``within``
    says whether saves stay within the overhead.
    """

    interval_s: float
    keep: str
    brings: Brings
    saves_a_month: float
    kept: int
    stored_bytes: float
    storage: float
    requests: float
    useful_hour: float | None
    within: bool

    @property
    def store(self) -> float:
        """Dollars a month for the store."""
        return self.storage + self.requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """All rows, by interval and then retention as asked; the recommended one, and by which rule it is."""

    rows: tuple[Row, ...]
    recommended: Row
    rule: str
    method: str
    notes: tuple[str, ...]


def answer(question: Question) -> Answer:
    """Compare all intervals and retentions. Pure: the same question has the same answer. Raises `UsageError`."""
    rows: list[Row] = []
    for interval_s in question.compared():
        brings = _brings(question, interval_s)
        history = History(
            interval_s=interval_s,
            horizon_s=question.horizon_s,
            step_s=question.step_s,
            state_bytes=question.state_bytes,
            new_bytes=question.new_bytes,
            seed=question.seed,
        )
        for policy in question.keeps:
            kept = history.kept(policy, price_per_gb_month=question.prices.gb_month)
            cost = store_cost(
                question,
                interval_s=interval_s,
                kept=kept,
                prunes=not policy.keeps_all,
                outages_per_s=brings.outages_per_s,
            )
            rows.append(
                Row(
                    interval_s=interval_s,
                    keep=policy.text(),
                    brings=brings,
                    saves_a_month=_MONTH_H * 3600 / interval_s,
                    kept=kept,
                    stored_bytes=cost.stored_bytes,
                    storage=cost.storage,
                    requests=cost.requests,
                    useful_hour=_useful_hour(question, brings.goodput, cost.storage + cost.requests),
                    within=brings.stalled + brings.slowed <= question.overhead,
                )
            )
    best, rule = _recommended(question, rows)
    return Answer(
        rows=tuple(rows),
        recommended=best,
        rule=rule,
        method=_method(question),
        notes=tuple(_notes(question, rows)),
    )


def _brings(question: Question, interval_s: float) -> Brings:
    job, notice, failures = question.job(interval_s), question.notice, question.failures
    if isinstance(failures, Exponential):
        rate = 1 / question.mtbf_s
        mean = expect(job, rate=rate, notice=notice)
        return Brings(
            goodput=mean.goodput,
            stalled=mean.stalled,
            slowed=mean.slowed,
            lost=mean.lost,
            down=mean.down,
            lost_per_outage_s=mean.lost_per_outage_s,
            outages_per_s=rate,
        )
    if isinstance(failures, Replay):
        played = [
            simulate(job, failures, seed=question.seed + at, notice=notice) for at in range(_rounds(failures))
        ]
    else:
        horizon = _OUTAGES * question.mtbf_s
        played = [simulate(job, failures, seed=question.seed, horizon_s=horizon, notice=notice)]
    return _together(question, played)


def _rounds(replay: Replay) -> int:
    return max(1, min(_ROUNDS, _ROWS // len(replay.trace.counts)))


def _together(question: Question, played: Sequence[Outcome]) -> Brings:
    elapsed = sum(one.elapsed_s for one in played)
    there = elapsed - sum(one.waiting_s for one in played)
    if there <= 0:
        raise UsageError(
            f"the trace never has {question.machines} machines for the training",
            hint="plan with fewer: --machines",
            machines=question.machines,
        )
    outages = sum(one.outages for one in played)
    lost = sum(one.lost_s for one in played)
    return Brings(
        goodput=sum(one.useful_s for one in played) / there,
        stalled=sum(one.stalled_s for one in played) / there,
        slowed=sum(one.slowed_s for one in played) / there,
        lost=lost / there,
        down=sum(one.restarting_s + one.noticed_s for one in played) / there,
        lost_per_outage_s=lost / outages if outages else 0.0,
        outages_per_s=outages / elapsed,
        waiting=1 - there / elapsed,
    )


def _useful_hour(question: Question, goodput: float, store: float) -> float | None:
    if question.machine_price is None or goodput <= 0:
        return None
    return (question.machine_price * question.machines + store / _MONTH_H) / goodput


def _recommended(question: Question, rows: Sequence[Row]) -> tuple[Row, str]:
    """The pair to choose, and the rule by which it is chosen."""
    safe = [row for row in rows if row.kept >= _LEAST_KEPT] or list(rows)
    kept = "the cheapest retention that keeps two checkpoints or more"
    if question.machine_price is not None:
        best = min(safe, key=lambda row: (row.useful_hour or float("inf"), row.interval_s))
        return best, f"the lowest cost of an hour of kept work, machines and store together; {kept}"
    bounded = [row for row in safe if row.within] or safe
    best = min(bounded, key=lambda row: (-row.brings.goodput, row.store, row.interval_s))
    return best, f"the highest goodput with saves taking at most {question.overhead:.1%} of the time; {kept}"


def _method(question: Question) -> str:
    failures = question.failures
    if isinstance(failures, Exponential):
        return "closed form, outages without memory"
    if isinstance(failures, Replay):
        return f"simulated: the trace {failures.trace.name}, played {_rounds(failures)} times with other lots"
    return f"simulated: {_OUTAGES} outages, Weibull of shape {failures.shape:g}"


def _notes(question: Question, rows: Sequence[Row]) -> list[str]:
    notes: list[str] = []
    if not all(row.within for row in rows):
        notes.append(f"! saves take more than {question.overhead:.1%} of the time")
    waiting = rows[0].brings.waiting
    if waiting >= 0.001:
        notes.append(
            f"for {waiting:.1%} of the trace there are fewer than {question.machines} machines; goodput is that of "
            "the rest"
        )
    if not question.prices.gb_month:
        notes.append(
            f"{question.prices.name} costs nothing here: name the store's prices, as --prices azure-hot"
        )
    if question.notice_s and question.notice_chance and not question.notice.saves:
        notes.append(
            f"a notice of {question.notice_s:g} s is too short for the last save ({question.durable_s:.3g} s, and a "
            "quarter more to be sure): it is not counted on"
        )
    if question.prices.archive:
        notes.append(
            f"{question.prices.name} is an archive: a restart waits up to {question.prices.archive[0].hours:g} h until "
            "its checkpoint can be read; that is not counted here"
        )
    if question.prices.minimum_days and any(not policy.keeps_all for policy in question.keeps):
        notes.append(
            f"{question.prices.name} bills {question.prices.minimum_days:g} days at least: checkpoints that are "
            "pruned sooner cost as if they had stayed"
        )
    return notes
