"""Measurements, smoothed."""

import random

import pytest

from everstep.cadence.smoothing import Smoothed


def smoothed(values):
    """After all values."""
    made = Smoothed()
    for value in values:
        made.add(value)
    return made.value


def test_it_begins_with_nothing_and_follows_the_first():
    """One value is all that is known then."""
    assert Smoothed().value == 0
    assert smoothed([3.0]) == 3


def test_one_outlier_hardly_counts():
    """A hundred times as much, once in fifteen: a fifteenth more."""
    assert smoothed([2.0] * 7 + [200.0] + [2.0] * 7) == pytest.approx(2 * 16 / 15)
    assert smoothed([2.0] * 20 + [200.0] + [2.0] * 15) == 2


@pytest.mark.parametrize("now", [10.0, 0.4])
def test_three_in_a_row_are_a_change(now):
    """What was before is forgotten at once."""
    assert smoothed([2.0] * 15 + [now] * 2) == pytest.approx(2, rel=0.15)
    assert smoothed([2.0] * 15 + [now] * 3) == pytest.approx(now)


def test_noise_is_averaged():
    """Values between half and twice as much: near the mean, always."""
    chance, made = random.Random(0), Smoothed()
    for n in range(500):
        made.add(chance.lognormvariate(0, 0.35))
        assert n < 8 or 0.7 < made.value < 1.45


def test_differences_may_be_below_zero():
    """Noise around nothing averages to little, and is no change."""
    chance, made = random.Random(1), Smoothed()
    for n in range(500):
        made.add(chance.gauss(0, 1))
        assert n < 8 or made.value < 0.8


def test_the_share_below_a_bound():
    """Of the values that are remembered."""
    made = Smoothed()
    assert made.share_below(1) == 0
    for value in (1, 2, 3, 4):
        made.add(value)
    assert made.share_below(3) == 0.75
