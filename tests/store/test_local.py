"""The local store keeps the promises of a store."""

import pytest

from everstep.store.local import LocalStore
from tests.store.contract import StoreContract


class TestLocalStore(StoreContract):
    many = 10_001

    @pytest.fixture
    def store(self, tmp_path):
        return LocalStore(tmp_path / "store")
