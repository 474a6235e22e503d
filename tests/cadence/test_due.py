"""When a save is due, by each cadence."""

import math
from datetime import UTC, datetime

import pytest

from everstep.cadence import (
    AnyOf,
    At,
    Auto,
    Before,
    EverySeconds,
    EverySteps,
    Measured,
    Moment,
    Never,
)

DEADLINE = datetime(2026, 11, 22, 18, tzinfo=UTC)
AT = DEADLINE.timestamp()


def moment(*, step=1, since_s=0.0, at=0.0, step_s=1.0):
    """A step boundary."""
    return Moment(step=step, since_s=since_s, step_s=step_s, at=at)


def measured(durable_s):
    """A save that was durable after so long."""
    return Measured(step=1, stall_s=0.1, durable_s=durable_s, slowed_s=0, bytes=1, stored_bytes=1, at=0)


def test_steps_are_due_at_multiples_wherever_a_run_began():
    """The steps saved do not depend on where a run was resumed."""
    assert [step for step in range(1, 31) if EverySteps(10).due(moment(step=step))] == [10, 20, 30]


def test_seconds_are_due_when_they_have_passed():
    """A duration counts from the beginning of the last save."""
    cadence = EverySeconds(60)
    assert not cadence.due(moment(since_s=59.9))
    assert cadence.due(moment(since_s=60))


def test_given_steps_are_due_at_these_alone():
    """Each once."""
    assert [step for step in range(1, 300) if At(100, 5, 200).due(moment(step=step))] == [5, 100, 200]


def test_never_is_never():
    """By no step and no time."""
    assert not any(Never().due(moment(step=step, since_s=1e9)) for step in range(100))


def saves_before(cadence, *, step_s=10.0, takes=(), begin=-7200.0):
    """Seconds before the deadline at which saves begin, each durable after the next of ``takes``."""
    at, last, step, begun, left = AT + begin, AT + begin, 0, [], list(takes)
    while at < AT + 600:
        at, step = at + step_s, step + 1
        if cadence.due(moment(step=step, since_s=at - last, at=at, step_s=step_s)):
            begun.append(AT - at)
            last = at
            if left:
                cadence.learn(measured(left.pop(0)))
    return begun


def test_one_save_is_durable_before_the_deadline():
    """Before anything was measured it begins ten minutes and two steps ahead; once."""
    assert saves_before(Before(DEADLINE)) == [620]


def test_what_saves_take_says_how_early():
    """Twice the longest of the last times to durable, two steps, and five seconds."""
    cadence = Before(DEADLINE)
    for durable in (50, 100, 20):
        cadence.learn(measured(durable))
    (begun,) = saves_before(cadence, step_s=7)
    assert 2 * 100 + 2 * 7 + 5 - 7 < begun <= 2 * 100 + 2 * 7 + 5


def test_a_save_that_turns_out_fast_is_made_again_later():
    """Ten minutes were far too early: the state of half a minute before the deadline is safe as well."""
    first, second = saves_before(Before(DEADLINE), takes=[2, 2])
    assert first == 620
    assert 20 <= second <= 29


def test_a_lead_that_is_given_is_kept_to_unless_saves_take_longer():
    """``10m before``: at least these ten minutes."""
    assert saves_before(Before(DEADLINE, lead="5m"), takes=[200]) == [300]
    slow = Before(DEADLINE, lead="5m")
    slow.learn(measured(1000))
    assert saves_before(slow) == [2020]


def test_a_save_that_began_lately_is_not_made_again():
    """Whatever asked for it."""
    cadence = Before(DEADLINE)
    assert not cadence.due(moment(at=AT - 300, since_s=10))
    assert cadence.due(moment(at=AT - 300, since_s=1000))


def test_after_the_deadline_nothing_is_due():
    """A launch after it goes on without it."""
    assert saves_before(Before(DEADLINE), begin=1) == []


def test_any_of_several_is_due_when_one_is():
    """With that one's reason, and by the shortest interval."""
    cadence = AnyOf(EverySteps(100), EverySeconds(30), At(7))
    assert "multiple" in cadence.due(moment(step=100))
    assert "last save" in cadence.due(moment(step=1, since_s=31))
    assert "step 7" in cadence.due(moment(step=7))
    assert not cadence.due(moment(step=8, since_s=29))
    assert cadence.interval_s(step_s=0.1) == pytest.approx(10)
    assert cadence.interval_s(step_s=1) == 30


def test_what_the_step_alone_says_is_the_same_in_all_processes():
    """Ranks save these steps without a word; what the clock adds, rank 0 decides."""
    cadence = AnyOf(EverySteps(100), Auto(), At(7))
    assert [step for step in range(1, 201) if cadence.by_step(step)] == [7, 100, 200]
    for alone in (EverySeconds(1), Before(DEADLINE), Auto(), Never()):
        assert alone.by_step(100) == ""


def test_all_members_learn_and_tell():
    """An `Auto` among others sees all measurements and moments."""
    cadence = AnyOf(EverySteps(10), Auto())
    cadence.due(moment(step=10, since_s=5))
    cadence.learn(measured(10))
    (decision,) = cadence.decisions()
    assert decision.figures["up_s"] == 5
    assert cadence.decisions() == ()


def test_intervals_that_are_unknown_are_infinite():
    """For whoever paces uploads by them."""
    for cadence in (Never(), At(5), Before(DEADLINE), EverySteps(5), Auto()):
        assert cadence.interval_s(step_s=0) == math.inf
