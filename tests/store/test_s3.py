"""S3, by moto, keeps the promises of a store."""

import secrets

import pytest

from everstep.config import settings
from everstep.events import silent
from everstep.store.cloud import open_cloud
from tests.store.contract import CANARY, StoreContract


@pytest.fixture(scope="module")
def place(moto_server):
    return moto_server.bucket()


class TestS3Store(StoreContract):
    many = 1_100

    @pytest.fixture
    def store(self, moto_server, place):
        return open_cloud(
            f"s3://{place}/team/{secrets.token_hex(4)}",
            settings(
                environ={
                    "AWS_ACCESS_KEY_ID": moto_server.access_key,
                    "AWS_SECRET_ACCESS_KEY": CANARY,
                    "AWS_ENDPOINT_URL": moto_server.endpoint,
                }
            ).stores,
            silent,
        )
