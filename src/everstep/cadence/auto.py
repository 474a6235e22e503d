"""The interval that loses least time, from what saves cost and how often the training is interrupted."""

from __future__ import annotations

import math
from datetime import timedelta
from itertools import takewhile

from everstep.cadence.cadence import Decision, Life, Measured, Moment
from everstep.cadence.durations import checked_duration, duration_text
from everstep.cadence.failures import FailureRate, NoticeChance, Seen, seen
from everstep.cadence.reckoning import Reckoning
from everstep.cadence.smoothing import Smoothed
from everstep.errors import UsageError

__all__ = ["Auto"]

_FIRST_S = 60.0
"""The first save comes after a minute, so that its cost is known early and an early crash loses little."""
_UNKNOWN_S = 600.0
"""While the first save is under way, and what it costs unknown."""
_SOONEST_S = 1.0
"""However often launches end before they save, the next one's first save does not come sooner."""
_UNDER_WAY = 3
"""A save of which nothing was heard is taken to be under way for so many intervals."""
_GAIN = 0.03
"""The interval is changed when the expected loss that depends on it falls by this share at least."""
_BAND = 0.85
"""It is changed in any case when it is below this share of the shortest one allowed."""
_DURABLE_ROOM = 1.25
"""A period is at least so many times the time to durable: a save is finished before the next begins."""
_QUANTILE = 0.25
"""Planned is with the lower quartile of the MTBF: too frequent saves are bounded in cost, too rare ones are not."""
_MOST_UP_S = 50 * 365 * 86400.0
_LEAST_OVERHEAD = 1e-4
_PRIOR_MTBF_S = 4 * 3600.0
_PRIOR_WEIGHT, _TOLD_WEIGHT = 1.0, 4.0
_NOTICE, _NOTICE_TOLD = NoticeChance(announced=1, lost=3), NoticeChance(announced=4, lost=1)
_NOTICE_ROOM = 1.25
_LEAST_COST_S = 1e-3
_MOST_HALVED = 16
_MOST_S = 86400.0
"""No save takes a day: what a clock that was set says is cut off, for a training must not end because of it."""


class Auto:
    """Saves as often as loses least: Daly's optimum for what saves cost and how often the training is interrupted.

    ``overhead`` bounds the share of the time that saving may take (0.03 is 3 %). ``mtbf`` is the mean time between
    interruptions that you expect; it counts like four interruptions that were seen, without it four hours count like
    one. ``notice`` is how long before an interruption the training is told (SIGTERM), if it is: a save that fits into
    it loses no work. ``restart`` is how long a launch takes to train again (three minutes); it is part of the expected
    loss, not of the optimum. ``at_least`` is the shortest interval. Times are seconds, text ("4h") or a timedelta.

    The first save comes after a minute (or ``at_least``, where that is shorter); then measurements decide. Where the
    newest launches ended before they saved anything, each halves the time to the first save of the next one: else a run
    whose machines live shorter than the interval would never come on. The interval changes only when that lowers the
    expected loss by 3 % or more, or a bound is broken.
    """

    __slots__ = (
        "_at_least_s", "_barren", "_begun", "_costs", "_decisions", "_durables", "_interval_s", "_last_since_s",
        "_lives", "_mtbf_s", "_notice_s", "_overhead", "_reckoned", "_restart_s", "_stalls", "_step", "_under_way",
        "_up_s",
    )  # fmt: skip

    def __init__(
        self,
        overhead: float = 0.03,
        *,
        mtbf: float | str | timedelta | None = None,
        notice: float | str | timedelta | None = None,
        restart: float | str | timedelta = 180.0,
        at_least: float | str | timedelta = 60.0,
    ) -> None:
        number = isinstance(overhead, int | float) and not isinstance(overhead, bool)
        if not number or not _LEAST_OVERHEAD <= overhead <= 0.5:
            raise UsageError(
                f"overhead={overhead!r} is not between {_LEAST_OVERHEAD} and 0.5",
                hint='write the share of the time that saves may take: Auto(overhead=0.03), "auto 3%"',
                overhead=repr(overhead),
            )
        self._overhead = float(overhead)
        self._mtbf_s = None if mtbf is None else checked_duration(mtbf, what=f"mtbf={mtbf!r}", least_s=60)
        self._notice_s = (
            None
            if notice is None
            else checked_duration(notice, what=f"notice={notice!r}", least_s=1, most_s=86400)
        )
        self._restart_s = checked_duration(restart, what=f"restart={restart!r}", most_s=86400)
        self._at_least_s = checked_duration(at_least, what=f"at_least={at_least!r}", most_s=7 * 86400)
        self._costs, self._stalls, self._durables = Smoothed(), Smoothed(), Smoothed()
        self._lives = Seen(lost=0, announced=0, up_s=0.0)
        self._up_s = self._last_since_s = 0.0
        self._begun = False
        self._barren = 0
        self._under_way = self._step = 0
        self._interval_s: float | None = None
        self._reckoned: Reckoning | None = None
        self._decisions: list[Decision] = []

    @property
    def by_history(self) -> bool:
        """Yes."""
        return True

    def by_step(self, step: int) -> str:  # noqa: ARG002 - the Protocol's signature
        """The step says nothing."""
        return ""

    def due(self, moment: Moment) -> str:
        """When the interval has passed, and the save before is durable as far as is known."""
        if moment.since_s < self._last_since_s:
            self._begun = True
            self._under_way = min(self._under_way + 1, 1)
            self._up_s += moment.since_s
        else:
            self._up_s += moment.since_s - self._last_since_s
        self._last_since_s = moment.since_s
        if self._interval_s is None:
            if self._begun:
                wait, every = _UNKNOWN_S, "nothing is measured yet"
            else:
                wait, every = (
                    min(_FIRST_S, max(_SOONEST_S, self._at_least_s)),
                    "the first save comes early, to be measured",
                )
        else:
            wait = self._interval_s * (_UNDER_WAY if self._under_way > 0 else 1)
            every = f"every {self._interval_s:.0f} s"
        if self._barren and not self._begun:
            wait = max(_SOONEST_S, min(wait, _FIRST_S) / 2**self._barren)
            every = f"sooner, for {self._barren} launches ended before they saved"
        return f"{moment.since_s:.0f} s since the last save (auto: {every})" if moment.since_s >= wait else ""

    def interval_s(self, *, step_s: float) -> float:
        """The interval in force, or one step where that is longer; infinite until a save was measured."""
        return math.inf if self._interval_s is None else max(self._interval_s, step_s)

    def learn(self, told: Measured | tuple[Life, ...]) -> None:
        """What a save cost, after which the interval is reckoned anew; or the run's attempts."""
        if isinstance(told, Measured):
            # a short save may be measured before its begin was seen: then this is -1, and 0 when it is seen
            self._under_way = max(self._under_way - 1, -1)
            stall_s = min(max(0.0, told.stall_s), _MOST_S)
            self._stalls.add(stall_s)
            self._costs.add(min(max(-_MOST_S, stall_s + told.slowed_s), _MOST_S))
            self._durables.add(min(max(stall_s, told.durable_s), _MOST_S))
            self._step = told.step
            self._decide(told.step)
        else:
            self._lives, self._up_s = seen(told), 0.0
            ended = [life for life in told if life.ended != "running"]
            barren = takewhile(lambda life: life.ended == "lost" and life.up_s == 0, reversed(ended))
            self._barren = min(sum(1 for _ in barren), _MOST_HALVED)
            if self._costs:
                self._decide(self._step)

    def decisions(self) -> tuple[Decision, ...]:
        """What was decided since this was asked last."""
        decided, self._decisions = tuple(self._decisions), []
        return decided

    def text(self) -> str:
        """``auto 3%``, or ``auto 5% with mtbf 4h and notice 30s``: what differs from the defaults."""
        said = [
            f"{name} {duration_text(value)}"
            for name, value, usual in (
                ("mtbf", self._mtbf_s, None),
                ("notice", self._notice_s, None),
                ("restart", self._restart_s, 180.0),
                ("at least", self._at_least_s, 60.0),
            )
            if value is not None and value != usual
        ]
        percent = f"{self._overhead * 100:.6f}".rstrip("0").rstrip(".")
        return f"auto {percent}%{' with ' if said else ''}{' and '.join(said)}"

    def __repr__(self) -> str:
        return f"Auto({self.text()!r})"

    def _decide(self, step: int) -> None:
        reckoned = self._reckon()
        now = self._interval_s
        if now is not None:
            broken = now < _BAND * reckoned.shortest_s
            if not broken and reckoned.gain(now) < _GAIN:
                return
        self._decisions.append(
            Decision(
                step=step,
                from_s=now or 0.0,
                to_s=reckoned.chosen_s,
                why=reckoned.why(self._reckoned, now),
                figures=reckoned.figures(now),
            )
        )
        self._interval_s, self._reckoned = reckoned.chosen_s, reckoned

    def _reckon(self) -> Reckoning:
        told = self._mtbf_s is not None
        prior = FailureRate.prior(
            self._mtbf_s or _PRIOR_MTBF_S, weight=_TOLD_WEIGHT if told else _PRIOR_WEIGHT
        )
        up_s = min(self._lives.up_s + self._up_s, _MOST_UP_S)
        rate = prior.observed(self._lives.events, up_s)
        chance = _NOTICE if self._notice_s is None else _NOTICE_TOLD
        fits = 1.0 if self._notice_s is None else self._durables.share_below(self._notice_s / _NOTICE_ROOM)
        return Reckoning(
            cost_s=max(self._costs.value, self._stalls.value, _LEAST_COST_S),
            stall_s=self._stalls.value,
            durable_s=self._durables.value,
            restart_s=self._restart_s,
            mtbf_s=rate.mtbf_quantile(_QUANTILE),
            mean_mtbf_s=rate.mtbf_s,
            seen=Seen(lost=self._lives.lost, announced=self._lives.announced, up_s=up_s),
            announced=chance.observed(announced=self._lives.announced, lost=self._lives.lost).mean,
            fits=fits,
            overhead=self._overhead,
            durable_room=_DURABLE_ROOM,
            at_least_s=self._at_least_s,
        )
