"""The real `Auto` in simulated trainings: interruptions, saves that cost now more and now less, outliers."""

import random

import pytest

from everstep.cadence import Auto
from tests.cadence.training import Cost, failures, train

HOUR = 3600.0


def noisy(seconds, *, seed=1, durable_s=20.0):
    """Saves that cost this much on average, mostly between half and twice as much, one in a hundred six times."""
    chance = random.Random(seed)

    def cost(_at):
        factor = chance.lognormvariate(-0.08, 0.4) * (6 if chance.random() < 0.01 else 1)
        return Cost(
            stall_s=seconds * factor * 2 / 3, slowed_s=seconds * factor / 3, durable_s=durable_s * factor
        )

    return cost


def best_fixed(trained, *, cost_s, durable_s, shortest_s):
    """The waste of the best fixed interval for these very lives, found by trying all, 1 % apart."""

    def progress(period):
        durable = (int(max(0.0, life.up_s - durable_s) // period) for life in trained.lives)
        return sum(durable) * (period - cost_s)

    return 1 - max(progress(shortest_s * 1.01**n) for n in range(700)) / trained.wall_s


@pytest.mark.parametrize(
    ("mtbf_h", "cost_s", "overhead", "lives", "step_s"),
    [
        (1, 2, 0.03, 120, 15),
        (4, 20, 0.03, 120, 30),
        pytest.param(4, 20, 0.1, 300, 30, marks=pytest.mark.more),
        pytest.param(4, 2, 0.03, 300, 30, marks=pytest.mark.more),
        pytest.param(10, 1, 0.03, 100, 30, marks=pytest.mark.more),
        pytest.param(30, 5, 0.03, 200, 60, marks=pytest.mark.more),
    ],
)
def test_hardly_more_is_lost_than_with_the_best_fixed_interval(mtbf_h, cost_s, overhead, lives, step_s):
    """Though each launch begins without knowing what a save costs: within 8 %, and the overhead within its bound.

    Few changes: about one for each launch besides the first measurement.
    """
    hours = mtbf_h * lives
    interruptions = failures(mtbf_h * HOUR, until=hours * HOUR, seed=5)
    trained = train(
        lambda: Auto(overhead), hours=hours, interruptions=interruptions, cost=noisy(cost_s), step_s=step_s
    )
    best = best_fixed(trained, cost_s=1.05 * cost_s, durable_s=21, shortest_s=cost_s / overhead)
    assert len(trained.lives) > 0.8 * lives
    assert trained.waste < 1.08 * best
    assert trained.overhead < overhead
    assert len(trained.decisions) < 2.5 * len(trained.lives)


def test_the_bound_on_overhead_holds_where_more_saves_would_lose_less():
    """Saves of 30 s, an interruption each hour: without the bound twice as much would go into saves."""
    interruptions = failures(HOUR, until=60 * HOUR, seed=2)
    bounded = train(lambda: Auto(0.03), hours=60, interruptions=interruptions, cost=noisy(30))
    free = train(lambda: Auto(0.5), hours=60, interruptions=interruptions, cost=noisy(30))
    first = 30 * len(bounded.lives) / bounded.wall_s  # one save of each launch, to measure it
    assert bounded.overhead - first < 0.03 < 0.055 < free.overhead
    assert free.waste < bounded.waste


def test_noise_and_outliers_change_little():
    """A day of saves that cost now half and now twice as much: after the first hours hardly a change."""
    trained = train(lambda: Auto(mtbf="4h"), hours=48, cost=noisy(2))
    late = [decision for decision in trained.decisions if decision.step > 6 * 360]
    assert trained.saves > 200
    assert len(late) <= 4
    assert all(0.6 < decision.to_s / decision.from_s < 1.7 for decision in late)


def test_one_slow_save_changes_nothing():
    """A save that costs fifty times as much, once."""
    costs = iter([2.0] * 30 + [100.0] + [2.0] * 10_000)
    trained = train(Auto, hours=20, cost=lambda _at: Cost(stall_s=next(costs)))
    around = [decision for decision in trained.decisions if "saves cost" in decision.why]
    assert around == []


@pytest.mark.parametrize("factor", [5, 0.2])
def test_costs_that_jump_are_followed_after_three_saves(factor):
    """The interval is then what it would be with the new cost from the start."""
    before, after = 4.0, 4.0 * factor
    jump = 10 * HOUR
    trained = train(
        lambda: Auto(mtbf="4h", overhead=0.5),
        hours=20,
        cost=lambda at: Cost(stall_s=before if at < jump else after),
    )
    fresh = train(lambda: Auto(mtbf="4h", overhead=0.5), hours=20, cost=lambda _at: Cost(stall_s=after))
    (change,) = [decision for decision in trained.decisions if "saves cost" in decision.why]
    waited = change.step * 10 + before * 100 - jump
    assert waited < 5 * change.from_s
    assert change.to_s == pytest.approx(change.from_s * factor**0.5, rel=0.3)
    assert trained.decisions[-1].to_s == pytest.approx(fresh.decisions[-1].to_s, rel=0.3)


def test_a_notice_that_works_makes_saves_rarer():
    """Interruptions that are announced and saved lose nothing, so fewer saves are made, and less is lost."""
    interruptions = failures(HOUR, until=100 * HOUR, seed=3)
    silent = train(Auto, hours=100, interruptions=interruptions, cost=noisy(2))
    told = train(
        lambda: Auto(notice="2m"),
        hours=100,
        interruptions=interruptions,
        cost=noisy(2),
        noticed=lambda number: number % 10 != 0,
    )
    assert told.saves < 0.6 * silent.saves
    assert told.waste < 0.8 * silent.waste


def test_a_training_without_interruptions_saves_more_and_more_rarely():
    """Uptime without an event is knowledge too: the running spell is censored, not forgotten."""
    trained = train(Auto, hours=200, cost=lambda _at: Cost(stall_s=2))
    intervals = [decision.to_s for decision in trained.decisions]
    assert intervals == sorted(intervals)
    assert intervals[-1] > 4 * intervals[0]
    assert len(intervals) < 12
