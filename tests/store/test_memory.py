"""The store in memory keeps the promises of a store."""

import pytest

from everstep.store.memory import MemoryStore
from tests.store.contract import StoreContract


class TestMemoryStore(StoreContract):
    many = 10_001

    @pytest.fixture
    def store(self):
        return MemoryStore("test")
