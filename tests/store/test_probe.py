"""A probe of a store finds each promise that is broken."""

import os

import pytest

from everstep.errors import AccessDenied, AlreadyExists, StoreUnavailable
from everstep.store.memory import MemoryStore
from everstep.store.probe import Status, probe
from everstep.store.protocol import Listed


class Wrapped:
    """A store that breaks one promise on purpose."""

    def __init__(self):
        self.inner = MemoryStore()

    url = "memory://broken"

    def create(self, key, body):
        self.inner.create(key, body)

    def get(self, key, limit):
        return self.inner.get(key, limit)

    def get_range(self, key, start, into):
        self.inner.get_range(key, start, into)

    def list(self, prefix, after=""):
        return self.inner.list(prefix, after)

    def delete(self, key):
        self.inner.delete(key)


def probed(store, clock=lambda: 0.0):
    """The checks by name."""
    found = probe(store, name="x", size=4000, clock=clock, monotonic=lambda: 0.0, random_bytes=os.urandom)
    return {check.name: check for check in found}


def test_a_good_store_passes_and_is_empty_again():
    """Nothing of the probe stays."""
    import time

    store = MemoryStore()
    found = probed(store, time.time)
    assert {check.status for check in found.values()} == {Status.OK}
    assert list(store.list("")) == []


class Overwrites(Wrapped):
    def create(self, key, body):
        try:
            self.inner.create(key, body)
        except AlreadyExists:
            self.inner.delete(key)
            self.inner.create(key, body)


class Forgets(Wrapped):
    def get(self, key, limit):
        return bytes(limit)


class Shifts(Wrapped):
    def get_range(self, key, start, into):
        self.inner.get_range(key, start + 1, into)


class Hides(Wrapped):
    def list(self, prefix, after=""):
        return iter(())


class ReadOnly(Wrapped):
    def create(self, key, body):
        raise AccessDenied("not permitted to write")


class Keeps(Wrapped):
    def delete(self, key):
        pass


class Breaks(Wrapped):
    def create(self, key, body):
        if "part" in key:
            raise StoreUnavailable("reset")
        self.inner.create(key, body)


@pytest.mark.parametrize(
    ("kind", "failed", "code"),
    [
        (Overwrites, "conditional create", "E-CONDITION-IGNORED"),
        (Forgets, "read", "E-STORE"),
        (Shifts, "range read", "E-STORE"),
        (Hides, "list", "E-STORE"),
        (ReadOnly, "write", "E-ACCESS-DENIED"),
        (Keeps, "delete", "E-STORE"),
        (Breaks, "bandwidth", "E-STORE-UNAVAILABLE"),
    ],
)
def test_a_broken_promise_is_found(kind, failed, code):
    """By the check that is about it, and no bandwidth is measured on a store that cannot be one."""
    found = probed(kind())
    assert [check.name for check in found.values() if check.status is Status.FAILED] == [failed]
    assert found[failed].error.code == code
    assert ("upload" in found) is (failed == "delete")


def test_a_store_that_permits_no_delete_is_a_warning():
    """Training needs none; prune does, and the probe says what it left."""

    class Undeletable(Wrapped):
        def delete(self, key):
            raise AccessDenied("no")

    found = probed(Undeletable())
    assert found["delete"].status is Status.WARNING
    assert "probes/x/" in found["delete"].hint


@pytest.mark.parametrize(
    ("off", "status", "word"), [(0, "ok", "agree"), (300, "warning", "ahead"), (-300, "warning", "behind")]
)
def test_the_stores_clock_is_compared_with_ours(off, status, word):
    """In seconds; a minute is worth a word."""

    class Skewed(Wrapped):
        def list(self, prefix, after=""):
            for found in self.inner.list(prefix, after):
                yield Listed(key=found.key, size=found.size, modified=1000.0 + off)

    check = probed(Skewed(), clock=lambda: 1000.0)["list and clock"]
    assert check.status.value == status
    assert word in check.found
    assert check.number == off
