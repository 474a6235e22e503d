"""A store that counts is a store, and counts right."""

import pytest

from everstep.errors import ObjectNotFound
from everstep.store.count import Count
from everstep.store.memory import MemoryStore
from tests.store.contract import StoreContract


class TestCount(StoreContract):
    many = 300

    @pytest.fixture
    def store(self):
        return Count(MemoryStore())


def test_calls_and_bytes():
    """Calls are counted by verb and logged in order, failed ones too; bytes are those that moved."""
    store = Count(MemoryStore())
    store.create("a", memoryview(bytearray(8)).cast("d"))
    store.create("b", b"12")
    store.get("b", 10)
    store.get_range("a", 2, memoryview(bytearray(3)))
    list(store.list("a"))
    store.delete("a")
    with pytest.raises(ObjectNotFound):
        store.get("a", 1)
    assert store.calls == {"create": 2, "get": 2, "get_range": 1, "list": 1, "delete": 1}
    assert store.log == [(v, k) for v, k in zip("ccgrldg", "abbaaaa", strict=True) for v in [NAMES[v]]]
    assert (store.bytes_in, store.bytes_out) == (10, 5)
    store.clear()
    assert (store.calls.total(), list(store.log), store.bytes_in, store.bytes_out) == (0, [], 0, 0)


NAMES = {"c": "create", "g": "get", "r": "get_range", "l": "list", "d": "delete"}
