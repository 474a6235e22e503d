"""Estimates of how often a training is interrupted."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.cadence import Life
from everstep.cadence.failures import FailureRate, NoticeChance, gamma_cdf, gamma_quantile, seen
from everstep.errors import UsageError

HOUR = 3600.0


@pytest.mark.parametrize(
    ("probability", "degrees", "chi2"),
    [
        (0.95, 10, 18.3070),
        (0.5, 1, 0.454936),
        (0.75, 2, 2.772589),
        (0.95, 100, 124.3421),
        (0.99, 30, 50.8922),
        (0.01, 1, 0.000157088),
        (0.05, 40, 26.5093),
    ],
)
def test_gamma_quantiles_are_those_of_the_tables(probability, degrees, chi2):
    """A chi-squared variable with k degrees of freedom is twice a Gamma variable of shape k/2."""
    assert 2 * gamma_quantile(probability, degrees / 2) == pytest.approx(chi2, rel=5e-6)


def test_gamma_of_shape_one_is_the_exponential():
    """Both branches of the computation, against the closed form."""
    for x in (1e-6, 0.1, 1, 1.999, 2.001, 5, 30):
        assert gamma_cdf(x, 1) == pytest.approx(1 - math.exp(-x), rel=1e-11)
    assert gamma_cdf(0, 1) == 0
    assert gamma_quantile(0.25, 1) == pytest.approx(-math.log(0.75), rel=1e-9)


@given(st.floats(0.001, 0.999), st.floats(0.05, 5000))
def test_a_quantile_is_the_inverse(probability, shape):
    """For few events and for thousands."""
    assert gamma_cdf(gamma_quantile(probability, shape), shape) == pytest.approx(probability, abs=1e-7)


def life(up_s, ended, attempt=1):
    """An attempt."""
    return Life(attempt=attempt, up_s=up_s, ended=ended)


def test_a_spell_that_did_not_end_in_an_interruption_is_censored():
    """Its time counts, and it is no event."""
    counted = seen(
        [life(HOUR, "lost"), life(2 * HOUR, "noticed"), life(3 * HOUR, "finished"), life(HOUR, "running")]
    )
    assert (counted.lost, counted.announced, counted.events, counted.up_s) == (1, 1, 2, 7 * HOUR)


def test_an_attempt_that_saved_nothing_is_left_out():
    """A script that is started twenty times until it works is no machine that fails twenty times."""
    assert seen([life(0, "lost")] * 20).events == 0


def test_the_rate_goes_from_the_prior_to_what_was_seen():
    """First what was thought, in the end events over uptime."""
    prior = FailureRate.prior(4 * HOUR)
    assert prior.mtbf_s == 4 * HOUR
    assert prior.observed(0, 6 * HOUR).mtbf_s == 10 * HOUR
    assert prior.observed(1, 0).mtbf_s == 2 * HOUR
    assert prior.observed(1000, 1000 * HOUR).mtbf_s == pytest.approx(HOUR, rel=0.01)
    assert FailureRate.prior(HOUR, weight=4).observed(4, 0).mtbf_s == HOUR / 2


def test_the_lower_quantile_is_cautious_and_less_so_with_more_events():
    """One event tells little: the lower quartile is far below the mean. A hundred tell more."""
    few, many = FailureRate(shape=1, exposure_s=HOUR), FailureRate(shape=100, exposure_s=100 * HOUR)
    assert few.mtbf_quantile(0.25) == pytest.approx(HOUR / math.log(4))
    assert 0.9 * HOUR < many.mtbf_quantile(0.25) < HOUR
    assert few.mtbf_quantile(0.1) < few.mtbf_quantile(0.5) < few.mtbf_quantile(0.9)


def test_the_chance_of_a_notice():
    """A Beta distribution, counted up."""
    prior = NoticeChance(announced=1, lost=3)
    assert prior.mean == 0.25
    assert prior.observed(announced=3, lost=1).mean == 0.5


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: FailureRate.prior(0),
        lambda: FailureRate.prior(HOUR, weight=-1),
        lambda: FailureRate.prior(HOUR).observed(-1, 0),
        lambda: FailureRate.prior(HOUR).observed(1, -1),
        lambda: FailureRate.prior(HOUR).mtbf_quantile(0),
        lambda: FailureRate.prior(HOUR).mtbf_quantile(1),
        lambda: NoticeChance(announced=0, lost=1),
        lambda: NoticeChance(announced=1, lost=1).observed(announced=-1, lost=0),
    ],
)
def test_absurd_input_is_refused(wrong):
    """By name."""
    with pytest.raises(UsageError, match=r"="):
        wrong()
