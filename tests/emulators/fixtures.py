"""What tests ask for: running servers, one set for the whole test run."""

from collections.abc import Iterator

import pytest

from tests.emulators.azure import Azurite, azurite_at
from tests.emulators.fleet import Fleet, FleetAddress
from tests.emulators.gcs import GcsServer, gcs_at
from tests.emulators.s3 import S3Server, careless_at, moto_at

ADDRESS = "everstep_emulators"
FLEET = pytest.StashKey[Fleet]()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node) -> None:
    """Tell a pytest-xdist worker where to ask for servers: this process owns them."""
    stash = node.config.stash
    if FLEET not in stash:
        stash[FLEET] = fleet = Fleet()
        node.config.add_cleanup(fleet.close)
        stash[SERVED] = fleet.serve()
    node.workerinput[ADDRESS] = stash[SERVED]


SERVED = pytest.StashKey[str]()


@pytest.fixture(scope="session")
def emulators(request) -> Iterator[Fleet | FleetAddress]:
    """The servers of this test run, started when first asked for."""
    worker = getattr(request.config, "workerinput", None)
    if worker is not None:
        yield FleetAddress(worker[ADDRESS])
        return
    fleet = Fleet()
    yield fleet
    fleet.close()


@pytest.fixture(scope="session")
def azurite(emulators) -> Azurite:
    """A running Azurite; ``azurite.container()`` makes a fresh container."""
    return azurite_at(emulators.port("azurite"))


@pytest.fixture(scope="session")
def moto_server(emulators) -> S3Server:
    """A running S3 server that keeps create conditions; ``moto_server.bucket()`` makes a fresh bucket."""
    return moto_at(emulators.port("moto"))


@pytest.fixture(scope="session")
def gcs_server(emulators) -> GcsServer:
    """A running fake-gcs-server; ``gcs_server.bucket()`` makes a fresh bucket."""
    return gcs_at(emulators.port("gcs"))


@pytest.fixture(scope="session")
def careless_s3(emulators) -> S3Server:
    """A running S3 server that overwrites whatever condition a create has; for refusals only."""
    return careless_at(emulators.port("careless"))
