"""One reckoning of the best interval: what is known, what follows, and both in words."""

from __future__ import annotations

from dataclasses import dataclass

from everstep.cadence.durations import spoken
from everstep.cadence.failures import Seen
from everstep.cadence.interval import best_period, effective_rate, overhead_period, waste

__all__ = ["Reckoning"]

_TOLD_ABOVE = 1.15
"""What changed by less is not named as the reason of a change."""
_NEVER_S = 50 * 365 * 86400.0
"""Work that is lost more rarely is lost never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reckoning:
    """What a save costs and how often work is lost; the interval follows. Times in seconds.

    ``cost_s`` is the standstill (``stall_s``) and the slower steps of a save; ``mtbf_s`` the time between interruptions
    to plan with, ``mean_mtbf_s`` its expectation; ``announced`` the probability of a notice, ``fits`` that a save is
    durable in one; ``overhead`` the share of the time that saving may take.
    """

    cost_s: float
    stall_s: float
    durable_s: float
    restart_s: float
    mtbf_s: float
    mean_mtbf_s: float
    seen: Seen
    announced: float
    fits: float
    overhead: float
    durable_room: float
    at_least_s: float

    @property
    def rate(self) -> float:
        """Interruptions per second that lose work."""
        return effective_rate(1 / self.mtbf_s, announced=self.announced, fits=self.fits)

    @property
    def best_s(self) -> float:
        """Daly's period."""
        return best_period(self.cost_s, min(1 / self.rate, _NEVER_S))

    @property
    def overhead_s(self) -> float:
        """The shortest period within the overhead."""
        return overhead_period(self.cost_s, self.overhead)

    @property
    def shortest_s(self) -> float:
        """The shortest period that is allowed, whatever would be best."""
        return max(self.overhead_s, self.durable_room * self.durable_s, self.at_least_s)

    @property
    def chosen_s(self) -> float:
        """The best period that is allowed, in whole seconds if it has ten."""
        chosen = max(self.best_s, self.shortest_s)
        return float(round(chosen)) if chosen >= 10 else chosen

    def loss(self, period_s: float) -> float:
        """The expected share of the time that is lost in a way that depends on the period."""
        return waste(period_s, cost_s=self.cost_s, rate=self.rate)

    def waste(self, period_s: float) -> float:
        """The expected share of the time that is lost altogether."""
        lost = waste(period_s, cost_s=self.cost_s, rate=self.rate, durable_s=self.durable_s)
        return lost + self.restart_s / self.mtbf_s

    def gain(self, now_s: float) -> float:
        """The share of the loss (`loss`) that goes when the chosen period takes the place of ``now_s``."""
        return 1 - self.loss(self.chosen_s) / self.loss(now_s)

    def figures(self, now_s: float | None) -> dict[str, float]:
        """All numbers by name; times in seconds, shares between 0 and 1, ``waste_before`` when one was in force."""
        figures = {
            "cost_s": self.cost_s,
            "stall_s": self.stall_s,
            "slowed_s": self.slowed_s,
            "durable_s": self.durable_s,
            "restart_s": self.restart_s,
            "mtbf_s": self.mtbf_s,
            "mean_mtbf_s": self.mean_mtbf_s,
            "interruptions": float(self.seen.events),
            "up_s": self.seen.up_s,
            "announced": self.announced,
            "fits": self.fits,
            "best_s": self.best_s,
            "overhead_s": self.overhead_s,
            "shortest_s": self.shortest_s,
            "overhead": self.cost_s / self.chosen_s,
            "waste": self.waste(self.chosen_s),
        }
        return figures if now_s is None else figures | {"waste_before": self.waste(now_s)}

    @property
    def slowed_s(self) -> float:
        """What steps beside an upload are slower, all together."""
        return max(0.0, self.cost_s - self.stall_s)

    def why(self, before: Reckoning | None, now_s: float | None) -> str:
        """The reason in words and figures: what changed, what is known, and what follows from it."""
        changed = self._changed(before)
        kept = self.announced * self.fits
        notices = f", {100 * kept:.0f} % of them saved in time" if kept >= 0.005 else ""
        known = (
            f"a save costs {spoken(self.cost_s)} (standstill {spoken(self.stall_s)}, slower steps"
            f" {spoken(self.slowed_s)}) and is durable after {spoken(self.durable_s)}; planned is with an interruption"
            f" every {spoken(self.mtbf_s)} ({self.seen.events} seen in {spoken(self.seen.up_s)}){notices}"
        )
        return f"{changed}: {known}; {self._follows()}{self._share(now_s)}"

    def _follows(self) -> str:
        best = f"least is lost with a save every {spoken(self.best_s)} (Daly)"
        if self.best_s >= self.shortest_s:
            return best
        if self.shortest_s == self.overhead_s:
            bound = f"saves may take {100 * self.overhead:.3g} % of the time, which allows one"
        elif self.shortest_s == self.at_least_s:
            bound = "the shortest interval allowed is one"
        else:
            bound = "a save must be durable before the next begins, which allows one"
        return f"{best}, but {bound} every {spoken(self.shortest_s)}"

    def _share(self, now_s: float | None) -> str:
        after = f"; expected loss {100 * self.waste(self.chosen_s):.3g} % of the time"
        return after if now_s is None else f"{after} instead of {100 * self.waste(now_s):.3g} %"

    def _changed(self, before: Reckoning | None) -> str:
        if before is None:
            return "first measurement"
        changes = [
            ("saves cost", self.cost_s, before.cost_s),
            ("saves are durable after", self.durable_s, before.durable_s),
            ("work is lost every", 1 / self.rate, 1 / before.rate),
        ]
        what, now, then = max(changes, key=lambda change: _ratio(change[1], change[2]))
        if _ratio(now, then) < _TOLD_ABOVE:
            return "small changes have added up"
        return f"{what} {spoken(now)}, not {spoken(then)} as before"


def _ratio(a: float, b: float) -> float:
    a, b = max(a, 1e-9), max(b, 1e-9)
    return max(a / b, b / a)
