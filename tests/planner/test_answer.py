"""The rows of a plan, and the pair that it recommends."""

import pytest

from everstep.cadence.expectation import expect
from everstep.cadence.outages import Exponential, Replay, Weibull
from everstep.cadence.trace import parse_trace
from everstep.errors import UsageError
from everstep.planner.answer import answer
from everstep.planner.recorded import trace_of
from everstep.prices import prices
from everstep.retention.policy import parse_keep
from tests.planner.worlds import asked

DAY = 86400.0


def keeps(*texts):
    """Retentions to compare."""
    return tuple(parse_keep(text) for text in texts)


def test_there_is_a_row_for_each_interval_and_retention_and_shares_add_up():
    """In the order of intervals, then as asked."""
    question = asked(keeps=keeps("last 5", "last 2"), horizon_s=DAY)
    found = answer(question)
    assert [(row.interval_s, row.keep) for row in found.rows] == [
        (interval_s, keep) for interval_s in question.compared() for keep in ("last 5", "last 2")
    ]
    for row in found.rows:
        brings = row.brings
        assert brings.goodput + brings.stalled + brings.slowed + brings.lost + brings.down == pytest.approx(1)
        assert row.kept == (5 if row.keep == "last 5" else 2)


def test_without_memory_goodput_is_the_closed_form():
    """And the best is at Daly's interval, or so near that it does not matter."""
    question = asked(horizon_s=DAY, notice_s=120.0, notice_chance=0.8)
    found = answer(question)
    best = found.recommended
    assert best.interval_s == question.best_s
    mean = expect(question.job(best.interval_s), rate=1 / 14_400, notice=question.notice)
    assert best.brings.goodput == mean.goodput == max(row.brings.goodput for row in found.rows)
    assert "closed form" in found.method


def test_the_highest_goodput_within_the_overhead_is_recommended_with_the_cheapest_retention():
    """Two checkpoints at least: one alone leaves nothing to fall back on."""
    found = answer(asked(keeps=keeps("last 1", "last 9", "last 2"), horizon_s=DAY))
    assert found.recommended.keep == "last 2"
    assert found.recommended.within
    bound = answer(asked(overhead=0.001, horizon_s=DAY))
    assert bound.recommended.interval_s == 2000
    assert bound.recommended.brings.stalled <= 0.001
    assert any("! saves take more" in note for note in bound.notes)
    only = answer(asked(keeps=keeps("last 1"), horizon_s=DAY))
    assert only.recommended.keep == "last 1"


def test_with_a_price_of_machines_the_cheapest_useful_hour_is_recommended():
    """A tier that bills thirty days makes saves dear, so that it pays to save more seldom."""
    cheap = answer(asked(machine_price=1.0, horizon_s=DAY)).recommended
    dear = answer(asked(machine_price=1.0, prices=prices("azure-cool"), horizon_s=DAY))
    assert cheap.useful_hour == pytest.approx((1 + cheap.store / 730) / cheap.brings.goodput)
    assert dear.recommended.interval_s > cheap.interval_s
    assert "cost of an hour of kept work" in dear.rule
    assert any("bills 30 days at least" in note for note in dear.notes)


def test_an_interval_within_the_overhead_is_always_compared():
    """However small the overhead is."""
    found = answer(asked(overhead=0.0001, intervals=(60.0,), horizon_s=DAY))
    assert found.recommended.within
    assert 20_000 in [row.interval_s for row in found.rows]


def test_a_notice_that_is_too_short_is_told_and_not_counted():
    """A notice of 20 s for a save of 17: too near."""
    found = answer(asked(notice_s=20.0, notice_chance=0.8, horizon_s=DAY))
    plain = answer(asked(horizon_s=DAY))
    assert found.recommended.brings == plain.recommended.brings
    assert any("a notice of 20 s is too short" in note for note in found.notes)


def test_machines_that_fail_in_bursts_are_simulated_alike_each_time():
    """Weibull: several losses at once, so more is kept than without memory."""
    bursts = asked(failures=Weibull(mtbf_s=4 * 3600.0, machines=8), machines=8, horizon_s=DAY)
    found = answer(bursts)
    assert found == answer(bursts)
    smooth = answer(asked(failures=Exponential(mtbf_s=4 * 3600.0, machines=8), machines=8, horizon_s=DAY))
    assert found.recommended.brings.goodput == pytest.approx(smooth.recommended.brings.goodput, abs=0.03)
    assert "Weibull of shape 0.7" in found.method


def test_a_trace_is_played_and_one_without_enough_machines_is_refused():
    """Saves in step with the minutes of the trace are no better or worse than others, thanks to the blur."""
    rows = "".join(f"{60 * at},{8 - at % 7 // 6}\n" for at in range(0, 4000, 5))
    trace = parse_trace("time,machines\n" + rows, name="ours")
    question = asked(
        failures=Replay(trace=trace, machines=4, blur_s=trace.resolution_s), machines=4, horizon_s=DAY
    )
    found = answer(question)
    assert "the trace ours" in found.method
    assert 0.8 < found.recommended.brings.goodput < 1
    short = asked(failures=Replay(trace=trace, machines=8, blur_s=60.0), machines=8, horizon_s=DAY)
    assert any("fewer than 8 machines" in note for note in answer(short).notes)
    never = asked(failures=Replay(trace=trace, machines=9), machines=9, horizon_s=DAY)
    with pytest.raises(UsageError, match="never has 9 machines"):
        answer(never)


@pytest.mark.parametrize(
    ("name", "machines", "daly_s", "at_daly", "hourly"),
    [
        ("bamboo-p2", 1, 420, 0.978, 0.937),
        ("bamboo-p2", 8, 124, 0.933, 0.729),
        ("bamboo-g4dn", 4, 100, 0.915, 0.645),
        ("bamboo-64", 1, 242, 0.957, 0.772),
        ("bamboo-64", 8, 72, 0.837, 0.188),
    ],
)
def test_on_real_traces_dalys_interval_is_within_a_point_of_the_best_and_hourly_is_not(
    name, machines, daly_s, at_daly, hourly
):
    """As the planning guide's table says: although machines go in groups there, and the formula knows none."""
    trace = trace_of(name)
    failures = Replay(trace=trace, machines=machines, blur_s=trace.resolution_s)
    question = asked(failures=failures, machines=machines, intervals=(3600.0,), slowdown=0.08, horizon_s=DAY)
    goodput = {row.interval_s: row.brings.goodput for row in answer(question).rows}
    assert question.best_s == daly_s
    assert goodput[daly_s] == pytest.approx(at_daly, abs=0.0005)
    assert goodput[3600.0] == pytest.approx(hourly, abs=0.0005)
    assert goodput[daly_s] > max(goodput.values()) - 0.01


def test_a_store_without_prices_is_said_to_count_for_nothing():
    """A disk of one's own, unless its gigabytes are priced."""
    assert any(
        "costs nothing here" in note for note in answer(asked(prices=prices("disk"), horizon_s=DAY)).notes
    )
    assert not any("costs nothing" in note for note in answer(asked(horizon_s=DAY)).notes)


def test_an_archive_says_that_a_restart_waits():
    """Up to 15 hours, which no goodput counts."""
    found = answer(asked(prices=prices("azure-archive"), horizon_s=DAY))
    assert any("waits up to 15 h" in note for note in found.notes)
