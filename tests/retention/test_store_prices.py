"""What a store costs where nobody says it."""

import pytest

from everstep.retention.store_prices import usual_prices


@pytest.mark.parametrize(
    ("url", "name"),
    [("az://box/runs", "azure-hot"), ("S3://box", "s3-standard"), ("gs://box/a/b", "gcs-standard")],
)
def test_a_cloud_has_the_prices_of_its_usual_tier(url, name):
    """By the scheme of the address."""
    assert usual_prices(url).name == name


@pytest.mark.parametrize("url", ["./folder", "/folder", "file:///folder", "memory://x"])
def test_a_disk_has_none(url):
    """A budget of money is refused there unless prices are named."""
    assert usual_prices(url) is None
