"""When a save is due."""

from datetime import timedelta

import pytest

from everstep.cadence import EverySeconds, EverySteps, Moment, Never, parse_every
from everstep.errors import NotYetSupported, UsageError


def moment(*, step=1, since_s=0.0):
    """A step boundary."""
    return Moment(step=step, since_s=since_s, step_s=1.0, at=0.0)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (500, EverySteps(500)),
        ("500", EverySteps(500)),
        ("500 steps", EverySteps(500)),
        ("1 step", EverySteps(1)),
        ("30s", EverySeconds(30)),
        ("1.5 h", EverySeconds(5400)),
        ("10m", EverySeconds(600)),
        ("2d", EverySeconds(172800)),
        (timedelta(minutes=3), EverySeconds(180)),
        (None, Never()),
    ],
)
def test_what_users_write_is_understood(written, meant):
    """Steps, durations and None are read as they are meant."""
    assert parse_every(written) == meant


@pytest.mark.parametrize(
    "written",
    [0, -5, True, 2.5, "often", "", "-3s", "0s", "0", "10 m 5 s", timedelta(0), timedelta(seconds=-1), []],
)
def test_nonsense_is_refused_with_the_right_form(written):
    """What says no positive number of steps or time is an error that shows how to write it."""
    with pytest.raises(UsageError) as caught:
        parse_every(written)
    assert "every=500" in caught.value.hint


def test_auto_is_an_honest_error():
    """``auto`` says that it is not there yet, and what to use instead."""
    with pytest.raises(NotYetSupported) as caught:
        parse_every("auto")
    assert "every=" in caught.value.hint


def test_steps_are_due_at_multiples_wherever_a_run_began():
    """The steps saved do not depend on where a run was resumed."""
    assert [step for step in range(1, 31) if EverySteps(10).due(moment(step=step))] == [10, 20, 30]


def test_seconds_are_due_when_they_have_passed():
    """A duration counts from the beginning of the last save."""
    cadence = EverySeconds(60)
    assert not cadence.due(moment(since_s=59.9))
    assert cadence.due(moment(since_s=60))
