"""The world of ranks that these tests share."""

import pytest

from tests.integrations.dcp.pool import Pool


@pytest.fixture(scope="session")
def ranks():
    """Four ranks with a gloo process group."""
    pool = Pool(4)
    yield pool
    pool.close()
