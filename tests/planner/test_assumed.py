"""Figures: how they are written, and where they are from."""

import pytest

from everstep.errors import UsageError
from everstep.planner.assumed import Assumed, Assumptions, Measured


def test_a_figure_is_given_else_measured_else_a_default_and_says_which():
    """In this order."""
    found = Assumptions()
    told = Measured(value=7.0, where="run digits")
    assert found.seconds("stall", "2s", told, 1.0) == 2
    assert found.seconds("stall", None, told, 1.0) == 7
    assert found.seconds("stall", None, None, 1.0) == 1
    assert found.found == (
        Assumed(name="stall", value=2.0, origin="given"),
        Assumed(name="stall", value=7.0, origin="measured: run digits"),
        Assumed(name="stall", value=1.0, origin="default"),
    )


def test_figures_are_read_as_people_write_them():
    """Sizes, durations, rates, shares, numbers."""
    found = Assumptions()
    assert found.size("state", "15GB", None) == 15 * 10**9
    assert found.seconds("restart", "1h 30m", None, None) == 5400
    assert found.seconds("restart", "0", None, None) == 0
    assert found.rate("bandwidth", "500 MB/s", None, 1.0) == 5e8
    assert found.share("changed", "40%", None, 1.0) == pytest.approx(0.4)
    assert found.share("changed", "0.4", None, 1.0) == 0.4
    assert found.number("machines", 8, 1) == 8


@pytest.mark.parametrize(
    ("read", "message", "form"),
    [
        (lambda a: a.seconds("stall", "-2s", None, None), "--stall -2s cannot be read", "30s, 10m"),
        (lambda a: a.seconds("stall", "2", None, None), "--stall 2 cannot be read", "30s, 10m"),
        (lambda a: a.seconds("mtbf", "0s", None, None, least=1), "--mtbf 0s is less than 1", "30s, 10m"),
        (lambda a: a.seconds("mtbf", "9999999999h", None, None), "is more than", "30s, 10m"),
        (lambda a: a.size("state", "15 parsecs", None), "--state 15 parsecs cannot be read", "15GB"),
        (lambda a: a.size("state", "0GB", None), "--state 0GB is less than 1", "15GB"),
        (lambda a: a.size("state", None, None), "nothing says --state", "--run RUN"),
        (lambda a: a.rate("bandwidth", "1GB", None, 1.0), "--bandwidth 1GB cannot be read", "1GB/s"),
        (lambda a: a.rate("bandwidth", "1GB/h", None, 1.0), "--bandwidth 1GB/h cannot be read", "1GB/s"),
        (lambda a: a.share("changed", "140%", None, 1.0), "--changed 140% is more than 1", "0.4 or 40%"),
        (lambda a: a.share("changed", "some", None, 1.0), "--changed some cannot be read", "0.4 or 40%"),
        (lambda a: a.share("changed", "nan", None, 1.0), "--changed nan is", "0.4 or 40%"),
        (lambda a: a.number("machines", 0, 1, least=1), "is less than 1", "a number from 1"),
    ],
)
def test_what_cannot_be_is_refused_with_the_option_and_the_form(read, message, form):
    """Negative, absurd, without unit, misspelt."""
    with pytest.raises(UsageError) as caught:
        read(Assumptions())
    assert message in caught.value.message
    assert form in caught.value.hint


def test_a_measurement_out_of_bounds_counts_as_the_bound():
    """A share above 1 cannot be, however it was measured."""
    assert Assumptions().share("changed", None, Measured(value=1.02, where="run x"), 1.0) == 1.0
