"""Azure Blob storage, by Azurite, keeps the promises of a store."""

import secrets

import pytest

from tests.store.clouds import cloud_at
from tests.store.contract import StoreContract


@pytest.fixture(scope="module")
def container(azurite):
    """One container for all tests here: each has a prefix of its own."""
    return azurite.container()


class TestAzureStore(StoreContract):
    many = 1_100

    @pytest.fixture
    def store(self, azurite, container):
        url = f"az://{container}/team/{secrets.token_hex(4)}"
        return cloud_at(url, AZURE_STORAGE_CONNECTION_STRING=azurite.connection_string)
