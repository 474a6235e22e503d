"""What the tests of several ranks share."""

import pytest

from tests.zygote import Zygote


@pytest.fixture(scope="module")
def zygote():
    """Forks the ranks of a module's launches."""
    with Zygote() as running:
        yield running
