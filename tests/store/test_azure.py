"""Azure Blob storage, by Azurite, keeps the promises of a store."""

import secrets

import pytest

from everstep.config import settings
from everstep.events import silent
from everstep.store.cloud import open_cloud
from tests.store.contract import StoreContract


@pytest.fixture(scope="module")
def place(azurite):
    return azurite.container()


class TestAzureStore(StoreContract):
    many = 1_100

    @pytest.fixture
    def store(self, azurite, place):
        return open_cloud(
            f"az://{place}/team/{secrets.token_hex(4)}",
            settings(environ={"AZURE_STORAGE_CONNECTION_STRING": azurite.connection_string}).stores,
            silent,
        )
