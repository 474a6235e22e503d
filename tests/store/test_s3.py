"""S3, by moto, keeps the promises of a store."""

import secrets

import pytest

from tests.store.clouds import cloud_at
from tests.store.contract import CANARY, StoreContract


@pytest.fixture(scope="module")
def bucket(moto_server):
    """One bucket for all tests here: each has a prefix of its own."""
    return moto_server.bucket()


class TestS3Store(StoreContract):
    many = 1_100

    @pytest.fixture
    def store(self, moto_server, bucket):
        return cloud_at(
            f"s3://{bucket}/team/{secrets.token_hex(4)}",
            AWS_ACCESS_KEY_ID=moto_server.access_key,
            AWS_SECRET_ACCESS_KEY=CANARY,
            AWS_ENDPOINT_URL=moto_server.endpoint,
        )
