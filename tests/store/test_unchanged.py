"""A store that is only looked at."""

import pytest

from everstep.errors import StoreUnavailable
from everstep.store.memory import MemoryStore
from everstep.store.unchanged import Unchanged


def test_it_is_read_and_not_changed():
    """Creating and deleting are refused; reads and lists are the inner store's."""
    inner = MemoryStore("frozen")
    inner.create("a", b"12345")
    store = Unchanged(inner)
    for change in (lambda: store.create("b", b"1"), lambda: store.delete("a")):
        with pytest.raises(StoreUnavailable, match="dry run"):
            change()
    into = bytearray(2)
    store.get_range("a", 1, memoryview(into))
    assert (store.url, store.get("a", 9), bytes(into)) == (inner.url, b"12345", b"23")
    assert [found.key for found in store.list("")] == ["a"]
    assert [found.key for found in inner.list("")] == ["a"]
