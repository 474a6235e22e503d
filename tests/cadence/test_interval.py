"""The closed forms, held against figures worked out by hand, exact solutions and one another."""

import math

import pytest

from everstep.cadence.interval import (
    availability_period,
    best_period,
    checkfreq_steps,
    daly,
    effective_rate,
    goodput,
    overhead_period,
    waste,
    young,
)
from everstep.errors import UsageError

HOUR = 3600.0


def least(function, low, high):
    """Where a function with one valley is least, by golden section."""
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(200):
        a, b = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, b) if function(a) < function(b) else (a, high)
    return (low + high) / 2


def test_young_is_the_square_root():
    """A save of 2 s and an hour between interruptions: two minutes."""
    assert young(2, HOUR) == 120
    assert young(50, 10_000) == 1000


@pytest.mark.parametrize(("cost", "mtbf"), [(2, 4 * HOUR), (30, HOUR), (5, 600)])
def test_young_is_where_the_first_order_waste_is_least(cost, mtbf):
    """Whatever a restart takes, and how late a checkpoint is durable."""
    at = least(
        lambda t: waste(t, cost_s=cost, rate=1 / mtbf, durable_s=20, restart_s=180),
        cost,
        10 * young(cost, mtbf),
    )
    assert at == pytest.approx(young(cost, mtbf), rel=1e-6)


@pytest.mark.parametrize(
    ("ratio", "error"), [(1e-4, 1e-6), (0.01, 2e-5), (0.1, 5e-4), (0.5, 0.01), (1.9, 0.06)]
)
def test_daly_is_the_exact_optimum_nearly(ratio, error):
    """What his series is off by grows with the cost, as stated; Young's is off more."""
    exact = least(lambda t: -goodput(t, cost_s=ratio, mtbf_s=1), ratio, ratio + 3) - ratio
    assert daly(ratio, 1) == pytest.approx(exact, rel=error)
    assert abs(daly(ratio, 1) - exact) < abs(young(ratio, 1) - exact)


def test_daly_ends_at_the_mtbf():
    """A save that costs two MTBF or more: one save in each."""
    assert daly(200, 100) == daly(1000, 100) == 100
    assert best_period(200, 100) == 300


def test_where_the_optimum_lies_depends_on_no_delay():
    """Time to durable and restart are factors of the goodput, without notices."""
    at = least(lambda t: -goodput(t, cost_s=5, mtbf_s=2000, durable_s=100, restart_s=300), 5, 2000)
    assert at == pytest.approx(best_period(5, 2000), rel=1e-3)


@pytest.mark.parametrize(("cost", "mtbf", "restart"), [(2, 4 * HOUR, 0), (30, HOUR, 600), (300, HOUR, 1800)])
def test_the_availability_is_highest_where_saxena_says(cost, mtbf, restart):
    """The closed form is the maximum of its own objective."""
    at = least(
        lambda t: -(t - cost) / (t + t / mtbf * (t / 2 + restart)), cost, 10 * young(cost, mtbf) + 10 * cost
    )
    assert availability_period(cost, mtbf, restart_s=restart) == pytest.approx(at, rel=1e-6)


def test_all_agree_when_a_save_costs_little():
    """Three derivations, one interval."""
    periods = [young(1, 1e6) + 1, best_period(1, 1e6), availability_period(1, 1e6, restart_s=60)]
    assert max(periods) / min(periods) < 1.001


def test_goodput_is_one_less_the_waste_to_first_order():
    """The exact form and the approximation meet when interruptions are rare."""
    exact = goodput(1000, cost_s=2, mtbf_s=1e6, durable_s=30, restart_s=200)
    assert 1 - exact == pytest.approx(waste(1000, cost_s=2, rate=1e-6, durable_s=30, restart_s=200), rel=5e-3)


def test_goodput_with_notices_that_work_loses_only_saves_and_restarts():
    """Every spell is saved at its end."""
    assert goodput(1000, cost_s=2, mtbf_s=1e5, restart_s=100, kept=1) == pytest.approx(
        (1 - 2 / 1000) * 1e5 / (1e5 + 100), rel=1e-4
    )
    some = [goodput(1000, cost_s=2, mtbf_s=5000, restart_s=100, kept=kept) for kept in (0, 0.5, 1)]
    assert some == sorted(some)


def test_goodput_of_periods_beyond_reason_is_nothing():
    """A save that is never reached, or one that is never done with."""
    assert goodput(1e6, cost_s=2, mtbf_s=100) == 0
    assert goodput(10, cost_s=20, mtbf_s=100) == 0


def test_announced_interruptions_do_not_count():
    """Half are announced, and a save fits into four of five notices: six tenths are left."""
    assert effective_rate(1e-4, announced=0.5, fits=0.8) == pytest.approx(0.6e-4)
    assert effective_rate(1e-4, announced=1) == 0


def test_the_bound_on_overhead():
    """3 s at 3 %: at most once in 100 s, whole steps, and never two saves under way."""
    assert overhead_period(3, 0.03) == pytest.approx(100)
    assert checkfreq_steps(3, 7, overhead=0.03) == 15
    assert checkfreq_steps(3, 10, overhead=0.03) == 10
    assert checkfreq_steps(3, 7, overhead=0.03, durable_s=300) == 43
    assert checkfreq_steps(1e-3, 60, overhead=0.5) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: young(0, HOUR),
        lambda: young(-1, HOUR),
        lambda: young(1, math.inf),
        lambda: young(math.nan, 1),
        lambda: daly(1, 1e15),
        lambda: daly(True, 10),
        lambda: waste(100, cost_s=1, rate=-1),
        lambda: waste(0, cost_s=1, rate=1),
        lambda: effective_rate(1, announced=1.5),
        lambda: effective_rate(math.nan, announced=0.5),
        lambda: overhead_period(1, 0),
        lambda: overhead_period(1, 3),
        lambda: availability_period(1, 100, restart_s=-1),
        lambda: goodput(1, cost_s="2", mtbf_s=1),
    ],
)
def test_absurd_input_is_refused(wrong):
    """By name, with the form that is right."""
    with pytest.raises(UsageError, match=r"="):
        wrong()
