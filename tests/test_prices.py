"""Prices: a dated table with its sources, and a user's own in its place."""

import datetime as dt
import re
from pathlib import Path

import pytest

from everstep.errors import UsageError
from everstep.prices import BILLED_GB, Prices, known, load, overridden, prices


def test_every_entry_is_dated_sourced_and_placed():
    """A figure without its day, its source and its region is worth nothing."""
    assert {"azure-hot", "azure-archive", "s3-standard", "s3-deep-archive", "gcs-standard"} <= set(known())
    for name in known():
        one = prices(name)
        assert one.as_of > dt.date(2026, 1, 1)
        assert one.source
        assert one.region


def test_the_guide_names_every_entry():
    """And no other."""
    guide = (Path(__file__).parents[1] / "docs" / "guides" / "planning.md").read_text()
    section = guide.split("## Prices")[1].split("They are list prices")[0]
    named = set(re.findall(r"`((?:azure|s3|gcs)-[a-z0-9-]+|disk)`", section))
    assert named == set(known())


def test_colder_tiers_cost_less_to_keep_and_more_to_use():
    """The table's own order is a check of its figures."""
    for tiers in (
        ("azure-hot", "azure-cool", "azure-cold", "azure-archive"),
        ("s3-standard", "s3-standard-ia", "s3-glacier-ir", "s3-glacier", "s3-deep-archive"),
        ("gcs-standard", "gcs-nearline", "gcs-coldline", "gcs-archive"),
    ):
        table = [prices(name) for name in tiers]
        kept = [one.gb_month for one in table]
        days = [one.minimum_days for one in table]
        assert kept == sorted(kept, reverse=True)
        assert days == sorted(days)
        assert table[0].read_gb == 0
        assert all(one.write_1k >= table[0].write_1k for one in table)


def test_only_archives_that_are_offline_have_to_be_rehydrated():
    """Google's archive is readable at once; Azure's, and Glacier beyond Instant, are not."""
    assert {name for name in known() if prices(name).archive} == {
        "azure-archive",
        "s3-glacier",
        "s3-deep-archive",
    }
    ordinary = prices("s3-deep-archive").archive[0]
    assert ordinary.hours == 12
    assert ordinary.cost(10 * BILLED_GB, 1000) == pytest.approx(10 * 0.02 + 0.10)


def test_a_name_that_is_not_known_brings_the_near_ones():
    """And says that a file can be named."""
    with pytest.raises(UsageError, match="azure-hto") as caught:
        prices("azure-hto")
    assert "did you mean azure-hot" in caught.value.hint
    assert "TOML file" in caught.value.hint


def test_a_price_can_be_overridden_and_is_said_to_be():
    """Whoever has a contract pays otherwise."""
    changed = overridden(prices("azure-cool"), ["gb_month=0.01", " read_gb = 0 "])
    assert (changed.gb_month, changed.read_gb, changed.write_1k) == (0.01, 0.0, 0.01)
    assert "changed by the user: gb_month, read_gb" in changed.source
    assert "read_gb" not in changed.from_memory
    assert overridden(prices("disk"), []) == prices("disk")


@pytest.mark.parametrize(
    "change", ["gb_month", "gb=0.1", "gb_month=-1", "gb_month=cheap", "gb_month=nan", "gb_month=1e9", "=1"]
)
def test_a_change_that_is_no_price_is_refused_by_name(change):
    """Negative, absurd, misspelt: the error repeats it and shows the form."""
    with pytest.raises(UsageError, match="price") as caught:
        overridden(prices("azure-hot"), [change])
    assert change in caught.value.message
    assert "gb_month=0.02" in caught.value.hint or "from 0 on" in caught.value.hint


def test_a_file_of_ones_own_stands_alone_or_on_a_base(tmp_path):
    """What it does not say comes from the base."""
    own = tmp_path / "ours.toml"
    own.write_text('gb_month = 0.004\nas_of = 2026-11-01\nsource = "our contract"\n')
    assert load(own) == Prices(name="ours", as_of=dt.date(2026, 11, 1), source="our contract", gb_month=0.004)
    own.write_text('base = "azure-cool"\nread_gb = 0.0\n')
    assert load(own).gb_month == prices("azure-cool").gb_month
    assert load(own).read_gb == 0
    assert load(own).from_memory == ("list_1k",)
    assert str(own) in load(own).source


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("gb_months = 1", "gb_months"),
        ("write_1k = 1", "gb_month"),
        ("gb_month = -0.1", "gb_month"),
        ("gb_month = true", "gb_month"),
        ('gb_month = 1\nas_of = "today"', "as_of"),
        ("gb_month = 1\nas_of = 2026-11-01T10:00:00", "as_of"),
        ("gb_month = 1\nsource = 7", "source"),
        ("gb_month = 1\nfrom_memory = 7", "from_memory"),
        ('gb_month = 1\n[[rehydration]]\nname = "slow"', "rehydration"),
        ('base = "azure-hto"', "azure-hto"),
        ("gb_month =", "TOML"),
    ],
)
def test_a_file_with_a_wrong_field_is_refused_by_name(tmp_path, text, named):
    """The file, the field and the form."""
    own = tmp_path / "ours.toml"
    own.write_text(text)
    with pytest.raises(UsageError, match=named) as caught:
        load(own)
    assert caught.value.hint


def test_a_file_that_is_not_there_is_named(tmp_path):
    """No traceback of the operating system."""
    with pytest.raises(UsageError, match=r"none\.toml cannot be read"):
        load(tmp_path / "none.toml")
