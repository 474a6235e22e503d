"""Google Cloud Storage, by fake-gcs-server, keeps the promises of a store."""

import secrets

import pytest

from tests.store.clouds import cloud_at
from tests.store.contract import CANARY, StoreContract


@pytest.fixture(scope="module")
def bucket(gcs_server):
    """One bucket for all tests here: each has a prefix of its own."""
    return gcs_server.bucket()


class TestGcsStore(StoreContract):
    many = 1_100

    @pytest.fixture
    def store(self, gcs_server, bucket):
        return cloud_at(
            f"gs://{bucket}/team/{secrets.token_hex(4)}",
            STORAGE_EMULATOR_HOST=gcs_server.endpoint,
            GOOGLE_OAUTH_ACCESS_TOKEN=CANARY,
        )
