"""What `Auto` decides, and why, in words and figures."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.cadence import Auto, Life, Measured, Moment, parse_every
from everstep.errors import UsageError

GOLDEN = Path(__file__).parent / "golden"
HOUR = 3600.0


def moment(since_s, *, step=1):
    """A step boundary so long after the last save began."""
    return Moment(step=step, since_s=since_s, step_s=1.0, at=1e9)


def measured(stall_s, *, slowed_s=0.0, durable_s=10.0, step=100):
    """What a save cost."""
    return Measured(
        step=step,
        stall_s=stall_s,
        durable_s=durable_s,
        slowed_s=slowed_s,
        bytes=1,
        stored_bytes=1,
        at=0.0,
    )


def life(up_h, ended, attempt=1):
    """An attempt."""
    return Life(attempt=attempt, up_s=up_h * HOUR, ended=ended)


def decided(auto, *told):
    """The interval after some measurements."""
    for one in told:
        auto.learn(one)
    return auto.interval_s(step_s=0)


def test_the_first_save_comes_after_a_minute():
    """So that its cost is known, and an early crash loses little."""
    auto = Auto()
    assert not auto.due(moment(59))
    assert "the first save comes early" in auto.due(moment(60))
    auto.learn(measured(0.1))
    assert auto.interval_s(step_s=1) == 60
    assert auto.interval_s(step_s=90) == 90
    short = parse_every("auto with at least 5s")
    assert not short.due(moment(4.9))
    assert "the first save comes early" in short.due(moment(5))


@pytest.mark.parametrize(
    ("ended", "wait_s"),
    [
        ("", 60),
        ("lost", 30),
        ("lost lost lost", 7.5),
        ("lost " * 24, 1),
        ("lost noticed lost", 30),
        ("lost finished", 60),
        ("noticed", 60),
    ],
)
def test_launches_that_end_before_they_save_make_the_next_one_save_sooner(ended, wait_s):
    """Machines that live less than a minute: without it no launch would ever come further than the one before."""
    lives = [life(0.0 if how == "lost" else 1.0, how, n) for n, how in enumerate(ended.split())]
    auto = Auto()
    auto.learn((*lives, life(0.001, "running", 99)))
    assert not auto.due(moment(wait_s - 0.1))
    words = auto.due(moment(wait_s))
    assert words
    assert ("launches ended before they saved" in words) is (wait_s < 60)
    auto.learn(measured(0.1))
    assert not auto.due(moment(0.5)), "only the first one is hurried"
    assert not auto.due(moment(59))
    saved = Auto()
    saved.learn(measured(0.1))
    saved.learn((*lives, life(0.001, "running", 99)))
    assert not saved.due(moment(wait_s - 0.1))
    assert saved.due(moment(wait_s)), "also where the interval is known from the launch before"


def test_while_the_first_save_is_under_way_nothing_is_due():
    """Its cost is unknown: only after ten minutes another one is asked for."""
    auto = Auto()
    assert auto.due(moment(60))
    assert not auto.due(moment(5))
    assert not auto.due(moment(599))
    assert auto.due(moment(600))


def test_a_save_under_way_is_not_hurried_by_the_next():
    """An upload that suddenly takes long: the next save would only stand and wait for it."""
    auto = Auto()
    auto.due(moment(60))
    auto.learn(measured(2))
    every = auto.interval_s(step_s=1)
    auto.due(moment(10))
    assert auto.due(moment(every))
    auto.due(moment(10))  # it began, and is not durable
    assert not auto.due(moment(2 * every))
    auto.learn(measured(2))
    assert auto.due(moment(2 * every))


def test_a_save_that_was_never_measured_does_not_stop_saving():
    """After three intervals the next one is due all the same."""
    auto = Auto()
    auto.due(moment(60))
    auto.learn(measured(2))
    every = auto.interval_s(step_s=1)
    auto.due(moment(0))
    assert auto.due(moment(every))
    for _ in range(3):
        auto.due(moment(0))
        assert not auto.due(moment(2.9 * every))
        assert auto.due(moment(3 * every))


def test_a_save_measured_before_its_begin_was_seen_is_not_taken_for_one_under_way():
    """A save that is durable within the step is told before the next moment."""
    auto = Auto()
    auto.due(moment(60))
    auto.learn(measured(2))
    assert not auto.due(moment(10))
    assert auto.due(moment(auto.interval_s(step_s=1)))


def test_the_words_of_a_save_that_is_due():
    """Time and rule."""
    auto = Auto()
    every = decided(auto, measured(2))
    assert (
        auto.due(moment(every + 12)) == f"{every + 12:.0f} s since the last save (auto: every {every:.0f} s)"
    )


def test_the_interval_is_dalys():
    """With four hours expected: planned is with the lower quartile, a quarter of interruptions announced."""
    auto = Auto(mtbf="4h")
    auto.learn(measured(2))
    (decision,) = auto.decisions()
    assert decision.figures["mtbf_s"] == pytest.approx(3.13 * HOUR, rel=0.01)
    expected = (2 * 2 * decision.figures["mtbf_s"] / 0.75) ** 0.5
    assert decision.to_s == pytest.approx(expected, rel=0.01)
    assert decision.from_s == 0
    assert auto.decisions() == ()


def test_steps_that_vary_are_no_cost_on_average():
    """What steps beside an upload take longer is now more and now less, by chance: only the mean counts."""
    auto = Auto(mtbf="4h")
    for n in range(14):
        auto.learn(measured(2, slowed_s=1.5 if n % 2 else -1.5, step=n))
    (first,) = auto.decisions()
    assert first.figures["cost_s"] == 2
    assert first.figures["slowed_s"] == 0
    assert auto.interval_s(step_s=0) == first.to_s


def test_the_three_floors():
    """The overhead, the time to durable, the shortest interval."""
    assert decided(Auto(mtbf="10m"), measured(30)) == 1000
    assert decided(Auto(mtbf="10m"), measured(1, durable_s=400)) == 500
    assert decided(Auto(mtbf="10m"), measured(0.01)) == 60
    assert decided(Auto(mtbf="10m", at_least="20s"), measured(0.01)) == 20
    assert decided(Auto(mtbf="1m", at_least="0.1s"), measured(0, durable_s=0)) == pytest.approx(0.35, rel=0.1)


def test_interruptions_seen_make_saves_more_frequent_and_uptime_rarer():
    """Lives may be told before the first measurement or after it."""
    alone = decided(Auto(), measured(2))
    fragile = decided(Auto(), tuple(life(0.5, "lost", n) for n in range(10)), measured(2))
    solid = decided(Auto(), (life(200, "finished"),), measured(2))
    assert fragile < 0.6 * alone < 0.3 * solid
    assert decided(Auto(), measured(2), tuple(life(0.5, "lost", n) for n in range(10))) == fragile


def test_lives_told_again_take_the_place_of_what_was_seen():
    """After a restore in the middle of a launch its time stands in the attempts that are told."""
    auto = Auto()
    auto.due(moment(5 * HOUR))
    auto.learn((life(5, "lost"), life(0, "running", 2)))
    auto.learn(measured(2))
    assert auto.decisions()[0].figures["up_s"] == 5 * HOUR


def test_a_script_that_crashed_before_its_first_save_says_nothing():
    """Twenty starts while debugging leave the interval as it is."""
    assert decided(Auto(), tuple(life(0, "lost", n) for n in range(20)), measured(2)) == decided(
        Auto(), measured(2)
    )


def test_a_notice_counts_only_when_saves_fit():
    """Two minutes of notice: a save of 20 s is safe in it, one of 300 s is not."""
    lives = tuple(life(1, "noticed", n) for n in range(5))
    figures = []
    for durable in (20, 300):
        auto = Auto(notice="2m")
        auto.learn(lives)
        auto.learn(measured(2, durable_s=durable))
        figures.append(auto.decisions()[0].figures)
    assert (figures[0]["fits"], figures[1]["fits"]) == (1, 0)
    assert figures[0]["best_s"] > 2 * figures[1]["best_s"]


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"overhead": 0}, "overhead"),
        ({"overhead": 0.51}, "overhead"),
        ({"overhead": -0.1}, "overhead"),
        ({"overhead": 3}, "overhead"),
        ({"overhead": True}, "overhead"),
        ({"overhead": "3%"}, "overhead"),
        ({"mtbf": 0}, "mtbf"),
        ({"mtbf": "4 horses"}, "4 horses"),
        ({"mtbf": -5}, "mtbf"),
        ({"mtbf": "99999d"}, "99999d"),
        ({"notice": 0}, "notice"),
        ({"notice": "3d"}, "notice"),
        ({"notice": [1]}, "notice"),
        ({"restart": float("nan")}, "restart"),
        ({"at_least": "-1s"}, "-1s"),
    ],
)
def test_absurd_settings_are_refused(wrong, named):
    """By name, with the form that is right."""
    with pytest.raises(UsageError) as caught:
        Auto(**wrong)
    assert named in caught.value.message
    assert caught.value.hint


TIMES = st.floats(0, 1e12) | st.sampled_from([0.0, 1e-9, 0.5, 60.0])


@settings(max_examples=50)
@given(
    st.lists(st.tuples(TIMES, st.sampled_from(["lost", "noticed", "finished", "running"])), max_size=24),
    st.lists(st.tuples(TIMES, st.floats(-1e12, 1e12), TIMES, TIMES), min_size=1, max_size=20),
    st.sampled_from(
        ["auto", "auto 0.01%", "auto 50% with at least 1s", "auto with mtbf 3650d and notice 1s"]
    ),
)
def test_whatever_is_measured_it_decides_and_keeps_its_bounds(told, measurements, text):
    """A clock that is set, a save of nothing: a training does not end because of its cadence. Decisions form a chain."""
    auto = parse_every(text)
    auto.learn(tuple(Life(attempt=n, up_s=up, ended=ended) for n, (up, ended) in enumerate(told)))
    before = 0.0
    for stall, slowed, durable, since in measurements:
        auto.due(moment(since))
        auto.learn(measured(stall, slowed_s=slowed, durable_s=durable))
        for one in auto.decisions():
            assert (one.from_s, one.to_s >= 0.99 * one.figures["shortest_s"]) == (before, True)
            assert one.why
            before = one.to_s
        assert auto.interval_s(step_s=0) == before > 0


HISTORIES = {
    "a first launch": ("auto", (), [measured(1.5, slowed_s=0.6, durable_s=30)]),
    "a preemptible machine": (
        "auto",
        (*tuple(life(up, "lost", n) for n, up in enumerate((1.2, 0.4, 2.5, 0.7), 1)), life(0, "running", 5)),
        [measured(1.5, slowed_s=0.6, durable_s=30)],
    ),
    "notices that work": (
        "auto with notice 2m",
        (*tuple(life(1.5, "noticed", n) for n in range(1, 7)), life(0.5, "lost", 7), life(0, "running", 8)),
        [measured(1.5, slowed_s=0.6, durable_s=30)],
    ),
    "saves that become dear": (
        "auto",
        (life(20, "finished"), life(0, "running", 2)),
        [measured(2, step=100 * n) for n in range(1, 6)] + [measured(10, step=100 * n) for n in range(6, 12)],
    ),
    "one slow save": (
        "auto with mtbf 4h",
        (),
        [measured(2 if n != 4 else 60, durable_s=10 if n != 4 else 300, step=100 * n) for n in range(1, 10)],
    ),
    "a slow store": ("auto 1% with mtbf 2h", (), [measured(0.5, durable_s=900)]),
    "a large standstill": ("auto", (), [measured(90, durable_s=120)]),
    "next to nothing": ("auto", (), [measured(0, durable_s=0.1)]),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_golden_decisions(name):
    """Each decision with its reason, as people read it."""
    text, lives, measurements = HISTORIES[name]
    auto = parse_every(text)
    auto.learn(lives)
    for one in measurements:
        auto.learn(one)
    lines = [
        f"step {one.step}: {one.from_s:.0f} s -> {one.to_s:.0f} s\n  {one.why}\n" for one in auto.decisions()
    ]
    path = GOLDEN / f"{name.replace(' ', '-')}.txt"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(lines))
        pytest.fail(f"{path} was written: look at it and add it")
    assert "".join(lines) == path.read_text(), f"if that is meant, remove {path}"
