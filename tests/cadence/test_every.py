"""What users write as ``every=``."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.cadence import AnyOf, At, Auto, Before, EverySeconds, EverySteps, Never, parse_every
from everstep.errors import UsageError

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (500, EverySteps(500)),
        ("500", EverySteps(500)),
        ("500 steps", EverySteps(500)),
        ("Every 500 Steps", EverySteps(500)),
        ("1 step", EverySteps(1)),
        ("30s", EverySeconds(30)),
        ("1.5 h", EverySeconds(5400)),
        ("10m", EverySeconds(600)),
        ("10 minutes", EverySeconds(600)),
        ("every 2 hours", EverySeconds(7200)),
        ("2d", EverySeconds(172800)),
        (timedelta(minutes=3), EverySeconds(180)),
        (None, Never()),
        ("never", Never()),
        ("at 100, 200,5000", At(100, 200, 5000)),
        ("at 7", At(7)),
        (At(3, 1, 3), At(1, 3)),
        ([500], EverySteps(500)),
    ],
)
def test_what_users_write_is_understood(written, meant):
    """Steps, durations, single steps and None are read as they are meant."""
    assert parse_every(written) == meant
    assert parse_every(meant) is meant


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("1000 steps or 30m or at 100, 250", "1000 steps or 30m or at 100, 250"),
        (["1000", timedelta(minutes=30), At(100, 250)], "1000 steps or 30m or at 100, 250"),
        ((500, ["10m or at 3"]), "500 steps or 10m or at 3"),
        ("auto or at 100, 200", "auto 3% or at 100, 200"),
        ("auto", "auto 3%"),
        ("AUTO 5%", "auto 5%"),
        ("auto 2.5 % with mtbf 4h and notice 30 s", "auto 2.5% with mtbf 4h and notice 30s"),
        (
            "auto with restart 90s and at least 2 minutes",
            "auto 3% with restart 90s and at least 2m",
        ),
        ("auto with restart 3m", "auto 3%"),
        (Auto(0.1, mtbf=timedelta(days=2), notice=120), "auto 10% with mtbf 2d and notice 2m"),
        ("before 2026-11-22T18:00:00Z", "before 2026-11-22T18:00:00Z"),
        ("before 2026-11-22 20:00+02:00", "before 2026-11-22T18:00:00Z"),
        ("10m before 2026-11-22t18:00:00z", "10m before 2026-11-22T18:00:00Z"),
        (Before("2026-11-22T18:00:00Z", lead="90s"), "90s before 2026-11-22T18:00:00Z"),
        (
            Before(datetime(2026, 11, 22, 20, tzinfo=timezone(timedelta(hours=2)))),
            "before 2026-11-22T18:00:00Z",
        ),
        (
            AnyOf(EverySteps(5), AnyOf(EverySeconds(0.25), Never())),
            "5 steps or 0.25s or never",
        ),
    ],
)
def test_the_text_of_a_cadence_is_read_as_the_same_one(written, text):
    """It is kept in the attempt's record."""
    cadence = parse_every(written, now=NOW)
    assert cadence.text() == text
    assert parse_every(text, now=NOW).text() == text


@given(st.floats(0.001, 3e8), st.lists(st.integers(1, 10**15), min_size=1, max_size=5))
def test_any_duration_and_steps_survive_their_text(seconds, steps):
    """To the microsecond."""
    assert parse_every(EverySeconds(seconds).text()) == EverySeconds(seconds)
    assert parse_every(At(*steps).text()) == At(*steps)
    assert parse_every(EverySteps(steps[0]).text()) == EverySteps(steps[0])


@pytest.mark.parametrize(
    "written",
    [
        0, -5, True, 2.5, "often", "", "-3s", "0s", "0", "10 m 5 s", timedelta(0), timedelta(seconds=-1), [], (),
        {}, [None, 500], 10**16, "9999999 d", "0.0001s", timedelta(days=9999), "at", "at 0", "at 5 6", "at -1",
        "500 steps, 10m", "500 steps or", "or", "100 or 200", "before", "before tomorrow", "auto with",
        "auto with mtbf", "auto with mtbf 4h and mtbf 5h", "auto 5% mtbf 4h", "auto 0%", "auto 51%", "auto with fun 4h",
        "auto with overhead 3%", "5 before 2027-01-01T00:00:00Z",
    ],
)  # fmt: skip
def test_nonsense_is_refused_with_the_right_form(written):
    """What says no positive number of steps or time is an error that shows how to write it."""
    with pytest.raises(UsageError) as caught:
        parse_every(written, now=NOW)
    assert "every=500" in caught.value.hint
    assert caught.value.message.startswith("every=")
    assert repr(written) in caught.value.message


@pytest.mark.parametrize(
    ("written", "near"),
    [
        ("ato", "auto"),
        ("100 stpes", "steps"),
        ("auto with mtfb 4h", "mtbf"),
        ("10 minuts", "minutes"),
        ("befor 2027-01-01T00:00:00Z", "before"),
        ("nevr", "never"),
    ],
)
def test_a_misspelt_word_is_shown_with_the_nearest(written, near):
    """Instead of only the list of forms."""
    with pytest.raises(UsageError, match=f"did you mean '{near}'"):
        parse_every(written, now=NOW)


@pytest.mark.parametrize(
    ("written", "named"),
    [
        ("before 2026-11-22T18:00:00", "time zone"),
        ("before 2026-11-22", "time zone"),
        ("before 2025-11-22T18:00:00Z", "364 days ago"),
        ("before 2062-11-22T18:00:00Z", "ahead"),
        ("before 2026-13-22T18:00:00Z", "no date"),
    ],
)
def test_a_deadline_that_cannot_be_meant_is_refused(written, named):
    """Without a time zone, long past, or decades ahead."""
    with pytest.raises(UsageError, match=named):
        parse_every(written, now=NOW)
    with pytest.raises(UsageError, match=named):
        parse_every(["5 steps", written], now=NOW)


def test_a_past_deadline_in_an_object_is_refused_too():
    """Wherever it stands."""
    old = Before(datetime(2025, 1, 1, tzinfo=UTC))
    for every in (old, [5, old], AnyOf(EverySteps(5), old)):
        with pytest.raises(UsageError, match="ago"):
            parse_every(every, now=NOW)
    with pytest.raises(UsageError, match="time zone"):
        Before(datetime(2027, 1, 1))  # noqa: DTZ001 - that is the point


def test_a_deadline_that_passed_lately_is_taken():
    """A training that is launched again after it has the same words, and must be able to go on."""
    assert parse_every("5 steps or before 2026-11-21T11:00:00Z", now=NOW).text()


@pytest.mark.parametrize("wrong", [At, lambda: At(0), AnyOf, lambda: EverySteps(0)])
def test_objects_refuse_nonsense_too(wrong):
    """Not only texts."""
    with pytest.raises(UsageError) as caught:
        wrong()
    assert caught.value.hint
