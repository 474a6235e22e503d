"""The simulator: played by hand on small traces, and held against the closed forms."""

import itertools
import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.cadence import interval
from everstep.cadence.expectation import expect
from everstep.cadence.outages import Exponential, Replay, Weibull
from everstep.cadence.simulate import Job, Notice, simulate
from everstep.cadence.trace import parse_trace
from everstep.errors import UsageError

JOB = Job(interval_s=100, stall_s=2, durable_s=12, slowed_s=1, restart_s=30)
PLAIN = Job(interval_s=600, stall_s=10, durable_s=10, restart_s=60)
"""As the literature has it: a save stops training until it is durable."""


def told(*rows):
    """A trace of one machine that is there or not."""
    return parse_trace("time,machines\n" + "".join(f"{at},{count}\n" for at, count in rows), name="told")


def parts(outcome):
    """All times of an outcome that must add up."""
    return (
        outcome.useful_s
        + outcome.lost_s
        + outcome.stalled_s
        + outcome.slowed_s
        + outcome.noticed_s
        + outcome.restarting_s
        + outcome.waiting_s
    )


def test_work_stops_in_a_stall_slows_beside_an_upload_and_counts_once_durable():
    """One spell, second by second."""
    assert JOB.work_s(100) == 100
    assert JOB.work_s(102) == 100
    assert JOB.work_s(107) == pytest.approx(100 + 5 - 0.5)
    assert JOB.work_s(112) == pytest.approx(109)
    assert JOB.work_s(200) == pytest.approx(197)
    assert [JOB.saved_s(at) for at in (111.9, 112, 211.9)] == [0, 100, 100]
    assert JOB.saved_s(212) == pytest.approx(197)
    assert [JOB.stalled_s(at) for at in (99, 101, 150, 201)] == [0, 1, 2, 3]


def test_an_outage_loses_what_was_not_durable_and_costs_a_restart():
    """A machine that goes after 250 s and is there again at 400."""
    outcome = simulate(JOB, Replay(trace=told((0, 1), (250, 0), (400, 1), (500, 1))), seed=0)
    assert outcome.useful_s == pytest.approx(197 + 70)
    assert outcome.lost_s == pytest.approx(JOB.work_s(250) - 197)
    assert (outcome.stalled_s, outcome.waiting_s, outcome.restarting_s) == (4, 150, 30)
    assert (outcome.outages, outcome.saved_by_notice) == (1, 0)
    assert parts(outcome) == pytest.approx(outcome.elapsed_s) == 500
    assert outcome.goodput == pytest.approx(267 / 350)
    assert outcome.lost_per_outage_s == outcome.lost_s


def test_a_notice_that_is_long_enough_saves_all_and_one_that_is_too_short_nothing():
    """Word comes 20 s ahead; the last save takes 12 s of them, or would take 21."""
    trace = Replay(trace=told((0, 1), (250, 0), (250, 1), (500, 1)))
    saved = simulate(JOB, trace, seed=0, notice=Notice(probability=1, ahead_s=20, save_s=12))
    assert (saved.lost_s, saved.noticed_s, saved.saved_by_notice) == (0, 12, 1)
    assert saved.restarting_s == 30
    assert saved.useful_s == pytest.approx(JOB.work_s(230) + JOB.work_s(500 - 242 - 30))
    late = simulate(JOB, trace, seed=0, notice=Notice(probability=1, ahead_s=20, save_s=21))
    assert late == simulate(JOB, trace, seed=0)
    assert late.lost_s > 0


def test_an_outage_during_a_restart_begins_it_anew():
    """Nothing more can be lost in it."""
    trace = told((0, 1), (250, 0), (250, 1), (260, 0), (260, 1), (400, 1))
    outcome = simulate(JOB, Replay(trace=trace), seed=0, notice=Notice(probability=1, ahead_s=20, save_s=12))
    assert outcome.outages == 2
    assert outcome.saved_by_notice == 1
    assert parts(outcome) == pytest.approx(400)


def test_a_trace_that_never_has_enough_machines_is_waited_for_to_its_end():
    """And one that has them late is waited for until then."""
    never = simulate(JOB, Replay(trace=told((0, 1), (300, 1)), machines=2), seed=0)
    assert (never.waiting_s, never.useful_s, never.goodput) == (300, 0, 0)
    late = simulate(JOB, Replay(trace=told((0, 0), (200, 1), (300, 1))), seed=0)
    assert (late.waiting_s, late.useful_s, late.goodput) == (200, 100, 1)
    gone = simulate(JOB, Replay(trace=told((0, 1), (50, 0), (300, 0))), seed=0)
    assert (gone.waiting_s, gone.lost_s, parts(gone)) == (250, 50, 300)


def test_a_job_of_few_machines_among_many_is_hit_as_often_as_the_lot_says():
    """Of 16 machines 4 go: a job of 3 is spared with C(12, 3) / C(16, 3)."""
    rows = list(itertools.chain.from_iterable([(at, 16), (at, 12)] for at in range(0, 400_000, 100)))
    trace = Replay(trace=told(*rows), machines=3)
    outcome = simulate(Job(interval_s=50), trace, seed=3)
    assert outcome.outages / 3999 == pytest.approx(1 - math.comb(12, 3) / math.comb(16, 3), abs=0.03)


def test_a_blurred_trace_keeps_its_order_and_is_in_step_with_nothing():
    """Changes on whole minutes move on by less than a minute, those of one time together."""
    trace = told(*itertools.chain.from_iterable([(at, 0), (at, 1)] for at in range(60, 60_000, 60)))
    assert trace.resolution_s == 60
    replay = Replay(trace=trace, blur_s=trace.resolution_s)
    found = list(replay.outages(Random(0)))
    assert len(found) == 998
    moved = [one.at % 60 for one in found]
    assert [one.at // 60 for one in found] == [one.at // 60 for one in Replay(trace=trace).outages(Random(0))]
    assert all(one.ready == one.at for one in found)
    assert len(set(moved)) == len(moved)
    assert 25 < sum(moved) / len(moved) < 35


def test_the_same_seed_plays_the_same_and_every_second_is_accounted_for():
    """All failure models, with and without notices; another seed plays otherwise."""
    trace = told(*[(at, 8 - at % 3) for at in range(0, 50_000, 700)])
    for outages in (
        Exponential(mtbf_s=900, machines=2),
        Weibull(mtbf_s=900, machines=4),
        Replay(trace=trace, machines=5),
    ):
        for notice in (None, Notice(probability=0.5, ahead_s=40, save_s=12)):
            once = simulate(JOB, outages, seed=1, horizon_s=40_000, notice=notice)
            assert once == simulate(JOB, outages, seed=1, horizon_s=40_000, notice=notice)
            assert once != simulate(JOB, outages, seed=2, horizon_s=40_000, notice=notice)
            assert parts(once) == pytest.approx(40_000)
            assert once.outages > 5


@pytest.mark.parametrize("machines", [1, 8])
def test_machines_of_any_model_fail_once_in_their_mean_time(machines):
    """Any of them stops the job: its own mean time is so many times shorter."""
    horizon = 2000 * 3600.0
    for outages in (Exponential(mtbf_s=3600, machines=machines), Weibull(mtbf_s=3600, machines=machines)):
        seen = simulate(Job(interval_s=600), outages, seed=5, horizon_s=horizon).outages
        assert seen / machines == pytest.approx(2000, rel=0.06)


def test_weibull_outages_come_in_bursts():
    """A shape below 1 has more variation than its mean; shape 1 is the model without memory."""

    def variation(outages):
        times = [one.at for one in itertools.islice(outages.outages(Random(1)), 20_000)]
        gaps = [b - a for a, b in itertools.pairwise(times)]
        mean = sum(gaps) / len(gaps)
        return math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) / mean

    assert variation(Weibull(mtbf_s=3600, shape=0.7)) == pytest.approx(1.46, abs=0.06)
    assert variation(Weibull(mtbf_s=3600, shape=1.0)) == pytest.approx(1, abs=0.03)


CASES = [
    (job, mtbf_s, notice)
    for job in (
        JOB,
        Job(interval_s=60, stall_s=2, durable_s=17, slowed_s=1, restart_s=180),
        Job(interval_s=3600, stall_s=20, durable_s=20, restart_s=600),
    )
    for mtbf_s in (1800.0, 14400.0)
    for notice in (None, Notice(probability=0.9, ahead_s=120, save_s=20))
]


@pytest.mark.parametrize(("job", "mtbf_s", "notice"), CASES)
def test_without_memory_the_simulation_is_what_the_closed_form_says(job, mtbf_s, notice):
    """Goodput within half a point, costs of saves within 2 %, of outages within 5 %, over 20,000 outages."""
    played = simulate(job, Exponential(mtbf_s=mtbf_s), seed=1, horizon_s=20_000 * mtbf_s, notice=notice)
    closed = expect(job, rate=1 / mtbf_s, notice=notice)
    assert played.goodput == pytest.approx(closed.goodput, abs=0.005)
    assert played.stalled_s / played.elapsed_s == pytest.approx(closed.stalled, rel=0.02)
    assert played.slowed_s / played.elapsed_s == pytest.approx(closed.slowed, rel=0.02)
    assert played.lost_per_outage_s == pytest.approx(closed.lost_per_outage_s, rel=0.05)
    down = (played.restarting_s + played.noticed_s) / played.elapsed_s
    assert down == pytest.approx(closed.down, rel=0.05)


def test_the_exact_form_and_the_first_order_waste_agree_with_the_simulation():
    """Where a save is cheap and outages are rare: within 0.2 points of Young's waste and of the renewal goodput."""
    mtbf_s = 20_000.0
    played = simulate(PLAIN, Exponential(mtbf_s=mtbf_s), seed=2, horizon_s=30_000 * mtbf_s)
    form = {"cost_s": 10, "durable_s": 10, "restart_s": 60}
    renewal = interval.goodput(600, mtbf_s=mtbf_s, **form)
    assert played.goodput == pytest.approx(renewal, abs=0.002)
    assert 1 - played.goodput == pytest.approx(interval.waste(600, rate=1 / mtbf_s, **form), abs=0.002)


@pytest.mark.parametrize(("cost_s", "mtbf_s"), [(10.0, 20_000.0), (30.0, 7200.0), (60.0, 3600.0)])
def test_the_best_interval_of_the_simulation_is_dalys(cost_s, mtbf_s):
    """Of periods a tenth apart none beats Daly's by more than a thousandth, and those twice as far off are worse."""
    best = interval.best_period(cost_s, mtbf_s)

    def played(period):
        job = Job(interval_s=period, stall_s=cost_s, durable_s=cost_s, restart_s=120)
        return simulate(job, Exponential(mtbf_s=mtbf_s), seed=7, horizon_s=6_000 * mtbf_s).goodput

    at_best = played(best)
    assert max(played(best * factor) for factor in (0.7, 0.8, 0.9, 1.1, 1.2, 1.4)) < at_best + 0.001
    assert played(best / 2) < at_best
    assert played(best * 2) < at_best


def test_where_nothing_is_ever_lost_only_saves_cost():
    """The limit of rare outages."""
    never = expect(JOB, rate=0)
    assert (never.goodput, never.lost, never.down) == (pytest.approx(0.97), 0, 0)
    assert expect(JOB, rate=1e-12).goodput == pytest.approx(never.goodput, rel=1e-6)


@given(
    interval_s=st.floats(1, 1e6),
    stall=st.floats(0, 1),
    durable=st.floats(0, 1),
    slowed=st.floats(0, 1),
    restart_s=st.floats(0, 1e6),
    rate=st.floats(1e-9, 1e3),
    chance=st.floats(0, 1),
    ahead=st.floats(1, 10),
)
def test_the_closed_form_gives_shares_whatever_it_is_asked(
    interval_s, stall, durable, slowed, restart_s, rate, chance, ahead
):
    """Between 0 and 1, and 1 together, also where an outage comes every millisecond or once in a lifetime."""
    durable_s = interval_s * durable
    stall_s = durable_s * stall
    job = Job(
        interval_s=interval_s,
        stall_s=stall_s,
        durable_s=durable_s,
        slowed_s=(durable_s - stall_s) * slowed,
        restart_s=restart_s,
    )
    notice = Notice(probability=chance, ahead_s=durable_s * ahead, save_s=durable_s)
    found = expect(job, rate=rate, notice=notice)
    shares = (found.goodput, found.stalled, found.slowed, found.lost, found.down)
    assert all(-1e-9 <= share <= 1 + 1e-9 for share in shares)
    assert sum(shares) == pytest.approx(1)


def test_machines_without_memory_are_the_closed_form_by_either_model():
    """Weibull of shape 1 is the exponential, each machine with its own clock."""
    played = simulate(JOB, Weibull(mtbf_s=8000, machines=4, shape=1.0), seed=3, horizon_s=2e7)
    assert played.goodput == pytest.approx(expect(JOB, rate=4 / 8000).goodput, abs=0.005)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"interval_s": 0}, "interval"),
        ({"interval_s": math.inf}, "interval_s=inf"),
        ({"interval_s": 10, "stall_s": -1}, "stall_s=-1"),
        ({"interval_s": 10, "stall_s": 2, "durable_s": 1}, "stalls 2 s"),
        ({"interval_s": 10, "stall_s": 2, "durable_s": 5, "slowed_s": 4}, "slows by 4 s"),
        ({"interval_s": 10, "durable_s": 11}, "shorter than a save takes"),
    ],
)
def test_a_job_that_cannot_be_is_refused(wrong, named):
    """By the name of what is wrong."""
    with pytest.raises(UsageError, match=named):
        Job(**wrong)


def test_a_simulation_needs_an_end():
    """A model never ends by itself."""
    with pytest.raises(UsageError, match="without end"):
        simulate(JOB, Exponential(mtbf_s=10), seed=0)
