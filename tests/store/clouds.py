"""Each emulator behind a proxy, and stores on it, for tests of what goes wrong on the way."""

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from everstep.config import settings
from everstep.events import silent
from everstep.store.cloud import CloudStore, open_cloud
from tests.emulators.proxy import Proxy

__all__ = ["SECRET", "Behind", "behind", "behind_s3", "cloud_at", "opened"]

SECRET = "c4n4ry-5ecret"
NOWHERE = Path("/nonexistent")


def cloud_at(url: str, **environ: str) -> CloudStore:
    """The store at ``url`` as these variables say."""
    return open_cloud(url, settings(environ=environ, folder=NOWHERE).stores, silent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """One cloud's emulator behind a proxy. ``store()`` is an empty place in it."""

    kind: str
    proxy: Proxy
    open: Callable[[str], CloudStore]

    def store(self) -> CloudStore:
        return self.open(f"team/{secrets.token_hex(4)}")


def opened(kind: str, request: pytest.FixtureRequest) -> Iterator[Behind]:
    """One cloud's emulator in a fresh container or bucket, for as long as a test runs."""
    if kind == "azure":
        azurite = request.getfixturevalue("azurite")
        container = azurite.container()
        with Proxy(azurite.endpoint) as proxy:
            environ = {
                "AZURE_STORAGE_ACCOUNT_NAME": azurite.account,
                "AZURE_STORAGE_KEY": azurite.key,
                "AZURE_STORAGE_ENDPOINT": proxy.endpoint,
            }
            yield Behind(
                kind=kind, proxy=proxy, open=lambda prefix: cloud_at(f"az://{container}/{prefix}", **environ)
            )
    elif kind == "s3":
        moto = request.getfixturevalue("moto_server")
        bucket = moto.bucket()
        with Proxy(moto.endpoint) as proxy:
            environ = {
                "AWS_ACCESS_KEY_ID": moto.access_key,
                "AWS_SECRET_ACCESS_KEY": SECRET,
                "AWS_ENDPOINT_URL": proxy.endpoint,
            }
            yield Behind(
                kind=kind, proxy=proxy, open=lambda prefix: cloud_at(f"s3://{bucket}/{prefix}", **environ)
            )
    else:
        gcs = request.getfixturevalue("gcs_server")
        bucket = gcs.bucket()
        with Proxy(gcs.endpoint) as proxy:
            environ = {"STORAGE_EMULATOR_HOST": proxy.endpoint, "GOOGLE_OAUTH_ACCESS_TOKEN": SECRET}
            yield Behind(
                kind=kind, proxy=proxy, open=lambda prefix: cloud_at(f"gs://{bucket}/{prefix}", **environ)
            )


@pytest.fixture(params=["azure", "s3", "gcs"])
def behind(request) -> Iterator[Behind]:
    """Each cloud in turn."""
    yield from opened(request.param, request)


@pytest.fixture
def behind_s3(request) -> Iterator[Behind]:
    """S3 alone, where one cloud stands for all."""
    yield from opened("s3", request)
