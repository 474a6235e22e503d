"""How fast a save in the background may write: the rule of decision 5."""

import math

import pytest

from everstep.cadence import EverySeconds, EverySteps, Never
from everstep.checkpointer.pace import Pace

GB = 10**9


def test_an_upload_takes_a_quarter_of_the_interval_at_most():
    """Every 10 steps of 2 s are 20 s: 100 GB must be through in 5 s of them."""
    pace = Pace()
    for _ in range(3):
        pace.stepped(2.0)
    assert pace.pacer(100 * GB, cadence=EverySteps(10), now=0.0).bytes_per_s == 20 * GB
    assert pace.pacer(100 * GB, cadence=EverySeconds(40), now=0.0).bytes_per_s == 10 * GB


def test_it_is_never_asked_to_be_slower_than_half_a_gigabyte_a_second():
    """A small state and a long interval: slower would win nothing and be durable later."""
    assert Pace().pacer(GB, cadence=EverySeconds(3600), now=0.0).bytes_per_s == 0.5 * GB


def test_the_first_save_by_hand_runs_flat_out_and_later_ones_know_the_interval():
    """Without a cadence, or before a step was measured, the time since the last save is what is known."""
    pace = Pace()
    assert pace.pacer(100 * GB, cadence=Never(), now=10.0).bytes_per_s == math.inf
    assert pace.pacer(100 * GB, cadence=Never(), now=30.0).bytes_per_s == 20 * GB
    assert Pace().pacer(100 * GB, cadence=EverySteps(10), now=0.0).bytes_per_s == math.inf


def test_seconds_count_from_the_beginning_of_the_last_save():
    """The first question begins the count, each save begins it again."""
    pace = Pace()
    assert pace.since_save(5.0) == 0
    assert pace.since_save(8.0) == 3
    pace.pacer(GB, cadence=Never(), now=9.0)
    assert pace.since_save(10.0) == 1


def test_what_steps_beside_a_save_take_longer_is_told_once():
    """Against the mean of quiet steps, of which some are long too; less by chance is below 0."""
    pace = Pace()
    assert pace.slowed_s() == 0
    for seconds in (1.0, 1.0, 4.0):
        pace.stepped(seconds)
    for seconds in (3.0, 2.5):
        pace.stepped(seconds, beside=True)
    assert pace.slowed_s() == pytest.approx(1.5)
    assert pace.slowed_s() == 0
    pace.stepped(1.0, beside=True)
    assert pace.slowed_s() == pytest.approx(-1)
