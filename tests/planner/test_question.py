"""What follows from the figures of a question."""

import math

import pytest

from everstep.cadence import interval
from everstep.cadence.outages import Exponential, Replay
from everstep.cadence.trace import parse_trace
from everstep.errors import UsageError
from tests.planner.worlds import asked


def test_a_save_takes_its_stall_and_its_upload_and_costs_what_training_loses():
    """15 GB at 1 GB/s, two fifths of it new, on one machine and on three."""
    one = asked(changed=0.4, slowdown=0.25)
    assert (one.new_bytes, one.upload_s, one.durable_s) == (6 * 10**9, 6.0, 8.0)
    assert one.slowed_s == pytest.approx(1.2)
    assert one.cost_s == pytest.approx(3.2)
    assert asked(machines=3, failures=Exponential(mtbf_s=3600.0, machines=3)).durable_s == pytest.approx(7.0)
    assert asked(machines=3, failures=Exponential(mtbf_s=3600.0, machines=3)).mtbf_s == 1200.0


def test_a_notice_counts_only_when_the_last_save_fits_with_room_to_spare():
    """17 s and a quarter more."""
    assert asked(notice_s=22, notice_chance=0.8).notice.saves == 0.8
    assert asked(notice_s=21, notice_chance=0.8).notice.saves == 0


def test_the_best_interval_is_dalys_for_the_outages_that_lose_work():
    """A notice that saves four of five makes work last five times as long."""
    assert asked().best_s == math.ceil(interval.best_period(2.0, 14_400))
    noticed = asked(notice_s=120, notice_chance=0.8)
    assert noticed.best_s == math.ceil(interval.best_period(2.0, 5 * 14_400))
    assert asked(notice_s=120, notice_chance=1.0).best_s == 86400


def test_where_nothing_is_ever_lost_a_save_a_day_is_best():
    """A trace in which no machine goes."""
    calm = parse_trace("time,machines\n0,4\n9000,4\n", name="calm")
    question = asked(failures=Replay(trace=calm, machines=1))
    assert question.mtbf_s == math.inf
    assert question.best_s == 86400


def test_compared_are_the_best_those_asked_for_and_usual_ones_around():
    """All long enough for a save to be over; saves within the overhead are among them."""
    compared = asked(intervals=(77.0,), overhead=0.001).compared()
    assert {77.0, asked().best_s, 2000.0} <= set(compared)
    assert list(compared) == sorted(compared)
    assert min(compared) >= asked().durable_s
    assert 300.0 in compared


def test_an_interval_shorter_than_a_save_is_refused():
    """By both figures."""
    with pytest.raises(
        UsageError, match="an interval of 10 s is shorter than a save takes: it is durable after 17"
    ):
        asked(intervals=(10.0,)).compared()
