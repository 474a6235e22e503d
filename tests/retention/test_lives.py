"""How long a policy keeps packs, and from when on a cheaper tier pays, by the numbers."""

import math

import pytest

from everstep.prices import prices
from everstep.retention.lives import Verdict, fit, kept_days
from everstep.retention.policy import parse_keep
from everstep.retention.tiers import breaks_even_days, cloud_of, tier_named, tiers_of

HOUR = 3600.0
CLOUDS = ["azure", "s3", "gcs"]


@pytest.mark.parametrize(
    ("keep", "days"),
    [
        ("last 3", 3 * 4 / 24),
        ("last 3, daily 7", 7),
        ("hourly 48, weekly 4", 28),
        ("monthly 12", 366),
        ("within 36h", 1.5),
        ("last 3, best 2 by val_loss", math.inf),
        ("every 10000", math.inf),
        ("last 3, at most 2TB", 0.5),
        ("at most 2TB", None),
        ("all", math.inf),
    ],
)
def test_the_longest_that_a_policy_keeps(keep, days):
    """Saves every four hours: the rule that keeps longest decides; a budget alone cannot tell."""
    assert kept_days(parse_keep(keep), 4 * HOUR) == (None if days is None else pytest.approx(days))


def test_the_last_few_need_an_interval():
    """Without one nobody can tell, unless another rule has no end."""
    assert kept_days(parse_keep("last 3"), None) is None
    assert kept_days(parse_keep("last 3, every 1000"), None) == math.inf
    assert kept_days(None, None) == math.inf, "no policy keeps all"


def cost(tier, moved, lives, *, pack=256 * 2**20):
    """Dollars for a gigabyte that lives so many days, counted day by day: moved at an age, or never (None)."""
    hot = prices({"azure": "azure-hot", "s3": "s3-standard", "gcs": "gcs-standard"}[tier.cloud])
    cool = prices(tier.prices)
    month = 730 / 24
    if moved is None or lives <= moved:
        return lives * hot.gb_month / month
    billed = max(lives - moved, tier.minimum_days)
    return moved * hot.gb_month / month + billed * cool.gb_month / month + cool.write_1k / 1000 * 2**30 / pack


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_age_from_which_a_tier_pays(cloud):
    """A day earlier it costs more than staying, a day later less; for every tier of every cloud."""
    for tier in tiers_of(cloud):
        for moved in (1, 30, 90):
            least = breaks_even_days(tier, moved)
            assert moved < least < moved + tier.minimum_days + 30, tier
            assert cost(tier, moved, least - 0.01) > cost(tier, None, least - 0.01), tier
            assert cost(tier, moved, least + 0.01) < cost(tier, None, least + 0.01), tier


@pytest.mark.parametrize("cloud", CLOUDS)
def test_advice_by_numbers(cloud):
    """Packs that live three days must not go to a tier of thirty; kept without an end they should."""
    tier = tier_named(cloud)
    short = fit(parse_keep("last 18"), 4 * HOUR, tier, 30)
    assert (short.verdict, short.days) == (Verdict.NEVER, 3)
    assert "live 3 days, and a rule at 30 days never acts" in short.words
    dear = fit(parse_keep("last 18"), 4 * HOUR, tier, 1)
    assert dear.verdict is Verdict.DEAR
    assert "billed for 30 days at least" in dear.words
    assert fit(parse_keep("last 3, every 1000"), None, tier, 30).verdict is Verdict.FITS
    assert fit(parse_keep("monthly 12"), None, tier, 30).verdict is Verdict.FITS
    assert fit(parse_keep("last 3"), None, tier, 30).verdict is Verdict.UNKNOWN


def test_the_cloud_of_an_address():
    """Disks and memory have no tiers."""
    assert [cloud_of(url) for url in ("az://c/p", "S3://b", "gs://b/x", "file:///x", "/x", "memory://m")] == [
        "azure",
        "s3",
        "gcs",
        None,
        None,
        None,
    ]
