"""A retention policy's text and objects: what is read, how it is written again, what is refused."""

from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.errors import UsageError
from everstep.retention import (
    AtMostBytes,
    AtMostMoney,
    KeepBest,
    KeepDaily,
    KeepEvery,
    KeepHourly,
    KeepLast,
    KeepMonthly,
    KeepTagged,
    KeepVerified,
    KeepWeekly,
    KeepWithin,
    Policy,
    parse_keep,
)
from everstep.retention.directions import known_direction

EVERYTHING = (
    "last 3, best 2 by val_loss, every 10000, hourly 24, daily 7, weekly 4, monthly 12, within 48h, tagged,"
    " newest verified, at most 2TB, at most $50"
)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("last 3", [KeepLast(3)]),
        ("  LAST   3 ", [KeepLast(3)]),
        ("every 10_000", [KeepEvery(10000)]),
        ("every 500 steps", [KeepEvery(500)]),
        ("hourly 24, daily 7", [KeepHourly(24), KeepDaily(7)]),
        ("weekly 4,monthly 12", [KeepWeekly(4), KeepMonthly(12)]),
        ("within 48h", [KeepWithin(172800)]),
        ("within 1h 30m", [KeepWithin(5400)]),
        ("within 2 d", [KeepWithin(172800)]),
        ("best 2 by val_loss", [KeepBest(2, "val_loss", "min")]),
        ("best 2 by val_loss max", [KeepBest(2, "val_loss", "max")]),
        ("best 1 by eval/Accuracy", [KeepBest(1, "eval/Accuracy", "max")]),
        ('best 1 by "val loss, all"', [KeepBest(1, "val loss, all", "min")]),
        ('best 1 by "max" min', [KeepBest(1, "max", "min")]),
        ("at most 2TB", [AtMostBytes(2 * 10**12)]),
        ("at most 1.5 tib", [AtMostBytes(3 * 2**39)]),
        ("at most 500GB, at most $50", [AtMostBytes(5 * 10**11), AtMostMoney(50)]),
        ("at most $ 12.50", [AtMostMoney(12.5)]),
        ("at most 50 USD per month", [AtMostMoney(50)]),
        ("at most $50/month", [AtMostMoney(50)]),
        ("at most 50 dollars a month", [AtMostMoney(50)]),
        ("tagged, newest verified", [KeepTagged(), KeepVerified()]),
        ("last 3, last 3", [KeepLast(3)]),
        ("all, at most 2TB", [AtMostBytes(2 * 10**12)]),
    ],
)
def test_what_users_write_is_understood(written, meant):
    """Words in any case, numbers as people write them; a metric's name is taken as it stands."""
    assert parse_keep(written).rules == tuple(meant)


@pytest.mark.parametrize("written", [None, "", "  ", "all", "ALL", ["all"]])
def test_no_policy_keeps_everything(written):
    """So that nothing is deleted that nobody asked to delete."""
    policy = parse_keep(written)
    assert policy == Policy()
    assert policy.keeps_all
    assert policy.text() == "all"


def test_texts_and_objects_mix():
    """A rule, a list of rules and texts, a policy: all are the same policy."""
    meant = parse_keep("last 3, best 2 by reward, daily 7")
    assert parse_keep([KeepLast(3), "best 2 by reward, daily 7"]) == meant
    assert parse_keep((KeepLast(3), KeepBest(2, "reward"), KeepDaily(7))) == meant
    assert parse_keep(KeepLast(3)) == parse_keep("last 3")
    assert parse_keep(meant) is meant
    assert KeepWithin(timedelta(hours=48)) == KeepWithin(172800)
    assert KeepLast(np.int64(3)) == KeepLast(3)


def test_a_policy_prints_as_it_is_written():
    """And is read again as the same."""
    assert parse_keep(EVERYTHING).text() == EVERYTHING
    assert str(parse_keep(EVERYTHING)) == EVERYTHING


numbers = st.integers(1, 10**6)
any_rule = st.one_of(
    *(
        st.builds(kind, numbers)
        for kind in (KeepLast, KeepHourly, KeepDaily, KeepWeekly, KeepMonthly, KeepEvery)
    ),
    st.builds(KeepWithin, st.floats(1e-6, 3e9).map(lambda value: round(value, 6))),
    st.builds(
        KeepBest,
        numbers,
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip),
        st.sampled_from(["min", "max"]),
    ),
    st.builds(AtMostBytes, st.integers(1, 10**15)),
    st.builds(AtMostMoney, st.floats(1e-9, 1e9)),
    st.just(KeepTagged()),
    st.just(KeepVerified()),
)


@given(any_rule)
def test_every_rule_prints_as_a_text_that_is_read_as_it(rule):
    """Whatever the metric's name and the numbers: the run's record keeps the text."""
    assert parse_keep(str(rule)).rules == (rule,)


RULES = (
    "last",
    "best",
    "by",
    "every",
    "daily",
    "within",
    "at",
    "most",
    "all",
    "tagged",
    "newest",
    "verified",
)
OTHERS = (
    "min",
    "max",
    "loss",
    "3",
    "-1",
    "2TB",
    "$5",
    "48h",
    "per",
    "month",
    "1_000",
    "0",
    "9" * 5000,
    "\u0663",
)
SIGNS = (",", '"', '"a b"', "\\", "\n", "\x1f")
pieces = st.sampled_from(RULES + OTHERS + SIGNS)


@given(st.text() | st.lists(pieces, max_size=8).map(" ".join))
def test_any_text_is_a_policy_or_refused(text):
    """With an error that says how to write it, never with another; and what is read prints as the same."""
    try:
        policy = parse_keep(text)
    except UsageError as error:
        hint = error.hint
    else:
        hint = policy.text()
        assert parse_keep(hint) == policy
    assert hint


@pytest.mark.parametrize(
    ("written", "names", "shows"),
    [
        ("lst 3", "lst 3", "last 3"),
        ("dayly 7", "dayly 7", "daily 7"),
        ("latest 3", "latest 3", "last 3"),
        ("evry 500", "evry 500", "every 500"),
        ("bset 2 by val_loss", "bset 2 by val_loss", "best 2 by val_loss"),
        ("last3", "last3", "last 3"),
        ("at mots 5GB", "at mots 5GB", "at most 2TB"),
        ("atmost 5GB", "atmost 5GB", "at most 5GB"),
        ("frobnicate", "frobnicate", "last 3, best 2 by val_loss, every 10000"),
        ("none", "none", "last 3"),
        ("last", "last", "last 3"),
        ("last three", "last three", "last 3"),
        ("last 1.5", "last 1.5", "last 3"),
        ("last 0", "last 0", "last 3"),
        ("last -3", "last -3", "last 3"),
        ("last 99999999999", "last 99999999999", "last 3"),
        ("last " + "9" * 5000, "last 999", "last 3"),
        ("every 0", "every 0", "every 10000"),
        ("daily 7 days", "daily 7 days", "daily 7"),
        ("last 3,", "comma", "last 3, daily 7"),
        ("last 3,, daily 7", "comma", "last 3, daily 7"),
        (",", "comma", "last 3, daily 7"),
        ("best val_loss", "best val_loss", "best 2 by val_loss"),
        ("best 2 of val_loss", "best 2 of val_loss", "best 2 by val_loss"),
        ("best 2 by foo", "best 2 by foo", "best 2 by foo max"),
        ("best 2 by foo maxx", "maxx", "best 2 by foo max"),
        ("best 0 by loss", "best 0", "best 2 by val_loss"),
        ('best 2 by "val loss', "quote", 'best 2 by "val loss"'),
        ('best 2 by "\\x"', "best 2 by", "best 2 by val_loss"),
        ('best 2 by ""', "no metric", "best 2 by val_loss"),
        ("within 3", "within 3", "within 48h"),
        ("within 0s", "within 0", "within 48h"),
        ("within 9999w", "within", "within 48h"),
        ("at most 5", "at most 5", "at most $50"),
        ("at most", "at most", "at most 2TB"),
        ("at most 0GB", "more than 0 bytes", "at most 500GB"),
        ("at most $0", "more than 0 dollars", "at most $50"),
        ("at most -5GB", "at most -5GB", "at most $50"),
        ("at most 5XB", "at most 5XB", "at most $50"),
        ("newest", "always kept", "last 3"),
        ("newest verfied", "newest verfied", "newest verified"),
        ("tagged best", "tagged best", "tagged"),
        ("last 3, last 4", "'last 3' and 'last 4'", "last 3"),
        ("best 2 by loss, best 2 by loss max", "contradict", "best 2 by loss max"),
        ("best 2 by loss, best 3 by loss", "contradict", "best 3 by loss"),
        ("at most 2TB, at most 3TB", "contradict", "at most 3TB"),
        ("at most $2, at most $3", "contradict", "at most $3"),
        ("within 2h, within 3h", "contradict", "within 3h"),
        ("all, last 3", "contradict", "all"),
        ([], "no rule", "last 3"),
        ([""], "empty", "last 3"),
        (["last 3", 3], "3 (int)", "last 3"),
        (b"last 3", "bytes", "last 3"),
        (3, "3 (int)", "last 3"),
        ({"last": 3}, "dict", "last 3"),
        (KeepLast, "KeepLast without its number", "last 3"),
    ],
)
def test_what_is_off_is_named_with_the_correct_form(written, names, shows):
    """Unknown, misspelt, empty, negative, absurd, contradictory: each by name, with how it is written."""
    with pytest.raises(UsageError) as caught:
        parse_keep(written)
    assert names in caught.value.message
    assert shows in caught.value.hint


@pytest.mark.parametrize(
    "make",
    [
        lambda: KeepLast(0),
        lambda: KeepLast(True),
        lambda: KeepLast(2.0),
        lambda: KeepLast("3"),
        lambda: KeepEvery(10**16),
        lambda: KeepWithin(float("nan")),
        lambda: KeepWithin(-1),
        lambda: KeepWithin(timedelta(0)),
        lambda: KeepWithin("48h"),
        lambda: KeepBest(2, ""),
        lambda: KeepBest(2, None),
        lambda: KeepBest(2, "loss", "up"),
        lambda: KeepBest(2, "foo"),
        lambda: AtMostBytes(0),
        lambda: AtMostBytes(1.5),
        lambda: AtMostMoney(float("inf")),
        lambda: AtMostMoney(0),
        lambda: AtMostMoney(10**400),
    ],
)
def test_objects_are_checked_as_texts_are(make):
    """A rule that means nothing is not made."""
    with pytest.raises(UsageError) as caught:
        make()
    assert "write" in caught.value.hint


@pytest.mark.parametrize(
    ("metric", "direction"),
    [
        ("loss", "min"),
        ("val_loss", "min"),
        ("eval/loss", "min"),
        ("valLoss", "min"),
        ("trainloss", "min"),
        ("perplexity", "min"),
        ("RMSE", "min"),
        ("word_error_rate", "min"),
        ("FID", "min"),
        ("accuracy", "max"),
        ("val_acc", "max"),
        ("top5_accuracy", "max"),
        ("f1", "max"),
        ("f1_macro", "max"),
        ("ROC-AUC", "max"),
        ("mean_reward", "max"),
        ("bleu", "max"),
        ("neg_mean_squared_error", None),
        ("reward_loss", None),
        ("lr", None),
        ("foo", None),
        ("glossary", None),
        ("", None),
    ],
)
def test_the_direction_is_known_from_common_names(metric, direction):
    """And from no other: a wrong guess would delete the best checkpoints."""
    assert known_direction(metric) == direction
