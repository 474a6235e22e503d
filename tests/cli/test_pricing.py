"""Which prices a command reckons with."""

import pytest

from everstep.cli.pricing import money_text, prices_for
from everstep.errors import UsageError


@pytest.mark.parametrize(
    ("named", "url", "meant"),
    [
        (None, "az://box/runs", "azure-hot"),
        (None, "S3://box/runs", "s3-standard"),
        (None, "gs://box/runs", "gcs-standard"),
        ("azure-cool", "s3://box", "azure-cool"),
        ("s3-standard", "./folder", "s3-standard"),
    ],
)
def test_a_cloud_has_its_usual_prices_unless_others_are_named(named, url, meant):
    """By the scheme of the store's address."""
    assert prices_for(named, url).name == meant


@pytest.mark.parametrize("url", ["./folder", "/folder", "file:///folder", "memory://x"])
def test_a_disk_has_no_price(url):
    """Nothing is told of money then."""
    assert prices_for(None, url) is None


def test_prices_of_ones_own_come_from_a_file(tmp_path):
    """A TOML file, named by its path."""
    file = tmp_path / "ours.toml"
    file.write_text('base = "s3-standard"\ngb_month = 0.01\n')
    assert prices_for(str(file), "./folder").gb_month == 0.01


def test_unknown_prices_are_refused_with_those_there_are():
    """By name."""
    with pytest.raises(UsageError, match="azure-hott") as caught:
        prices_for("azure-hott", "./folder")
    assert "azure-hot" in caught.value.hint


@pytest.mark.parametrize(
    ("dollars", "text"), [(0, "$0.00"), (1234.5, "$1,234.50"), (0.02, "$0.02"), (0.00012345, "$0.00012")]
)
def test_money_reads_as_people_write_it(dollars, text):
    """Cents; of less than a cent two digits."""
    assert money_text(dollars) == text
