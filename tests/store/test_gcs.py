"""Google Cloud Storage, by fake-gcs-server, keeps the promises of a store."""

import secrets

import pytest

from everstep.config import settings
from everstep.events import silent
from everstep.store.cloud import open_cloud
from tests.store.contract import StoreContract


@pytest.fixture(scope="module")
def place(gcs_server):
    return gcs_server.bucket()


class TestGcsStore(StoreContract):
    many = 1_100

    @pytest.fixture
    def store(self, gcs_server, place):
        return open_cloud(
            f"gs://{place}/team/{secrets.token_hex(4)}",
            settings(environ={"STORAGE_EMULATOR_HOST": gcs_server.endpoint}).stores,
            silent,
        )
