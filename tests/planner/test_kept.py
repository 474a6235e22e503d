"""How many checkpoints a retention keeps."""

import pytest

from everstep.errors import UsageError
from everstep.planner.kept import History
from everstep.retention.policy import parse_keep


def history(interval_s=600.0, horizon_s=30 * 86400.0, **changes):
    """A month of saves, one each ten minutes, of 100 bytes of which 40 are new."""
    given = {"step_s": 1.0, "state_bytes": 100, "new_bytes": 40}
    return History(interval_s=interval_s, horizon_s=horizon_s, **(given | changes))


@pytest.mark.parametrize(
    ("keep", "count"),
    [
        ("all", 4320),
        ("last 3", 3),
        ("within 48h", 289),
        ("daily 7", 7),
        ("hourly 24", 24),
        ("weekly 2", 2),
        ("monthly 12", 2),
        ("every 6000", 432),
        ("at most 1GB", 4320),
        ("at most 300B", 6),
    ],
)
def test_a_month_of_saves_leaves_what_the_retention_says(keep, count):
    """The month begins on a Monday in January and ends in February; 60 bytes are shared by all."""
    assert history().kept(parse_keep(keep), price_per_gb_month=None) == count


def test_rules_together_keep_what_any_of_them_keeps():
    """Two of the last three are the newest of their hour; of the best two neither is among the last."""
    assert history().kept(parse_keep("last 3, hourly 24"), price_per_gb_month=None) == 25
    assert history().kept(parse_keep("last 3, best 2 by val_loss"), price_per_gb_month=None) == 5


@pytest.mark.parametrize(
    "keep", ["last 3", "within 7h", "hourly 5", "daily 3, last 9", "weekly 1", "monthly 1"]
)
def test_only_as_many_saves_are_looked_at_as_decide(keep):
    """What is cut off is nothing that a rule would keep: a budget without bounds, which needs all, changes nothing."""
    for interval_s in (1800.0, 5400.0, 90_000.0):
        saves = history(interval_s, horizon_s=40 * 86400.0)
        short, whole = parse_keep(keep), parse_keep(f"{keep}, at most 900TB")
        assert saves.kept(short, price_per_gb_month=None) == saves.kept(whole, price_per_gb_month=None)


def test_a_budget_in_money_needs_a_price():
    """Gigabytes are 2^30 bytes, as they are billed."""
    big = history(horizon_s=86400.0, state_bytes=2**30, new_bytes=2**30)
    assert big.kept(parse_keep("at most $1"), price_per_gb_month=0.02) == 50
    with pytest.raises(UsageError, match="prices"):
        big.kept(parse_keep("at most $1"), price_per_gb_month=None)


def test_even_the_shortest_history_has_a_save():
    """A horizon shorter than the interval."""
    assert history(600.0, horizon_s=60.0).kept(parse_keep("all"), price_per_gb_month=None) == 1
