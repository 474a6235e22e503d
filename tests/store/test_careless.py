"""A store that overwrites whatever the condition is refused before anything is kept in it."""

import pytest

from everstep.errors import ConditionIgnored
from everstep.repository.opening import open_repository
from tests.store.clouds import cloud_at


def test_a_store_that_ignores_the_condition_is_refused(careless_s3):
    """A real server that does so, at first use, by name of the store."""
    store = cloud_at(
        f"s3://{careless_s3.bucket()}",
        AWS_ACCESS_KEY_ID=careless_s3.access_key,
        AWS_SECRET_ACCESS_KEY=careless_s3.secret_key,
        AWS_ENDPOINT_URL=careless_s3.endpoint,
    )
    with pytest.raises(ConditionIgnored, match=store.url):
        open_repository(store, create=True)
