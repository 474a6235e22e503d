"""A store that is held back is a store, and is held back by what was asked."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from everstep.store.limit import Limit
from everstep.store.memory import MemoryStore
from tests.store.contract import StoreContract


class TestLimit(StoreContract):
    many = 300

    @pytest.fixture
    def store(self):
        return Limit(MemoryStore(), bytes_per_s=1e12, at_once=40)


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 100.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_bytes_are_paid_for():
    """Bytes written and read take the time that the rate says, the first ones none; idle time is not saved up."""
    clock = Clock()
    store = Limit(MemoryStore(), bytes_per_s=1000, clock=lambda: clock.now, sleep=clock.sleep)
    times = []
    for n in range(3):
        store.create(f"k{n}", bytes(500))
        times.append(clock.now)
    store.get("k0", 500)
    store.get_range("k0", 0, memoryview(bytearray(500)))
    times.append(clock.now)
    clock.now += 1000
    store.create("later", bytes(2000))
    store.create("last", b"1")
    assert times == pytest.approx([100.0, 100.5, 101.0, 102.0])
    assert clock.now == pytest.approx(1104.0)


def test_so_many_at_once():
    """No more requests than were allowed are under way at a time."""
    under_way, most, lock, gate = 0, 0, threading.Lock(), threading.Barrier(3, timeout=30)

    class Slow(MemoryStore):
        def create(self, key, body):
            nonlocal under_way, most
            with lock:
                under_way += 1
                most = max(most, under_way)
            gate.wait()  # three are here at once
            super().create(key, body)
            with lock:
                under_way -= 1

    store = Limit(Slow(), at_once=3)
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda n: store.create(str(n), b""), range(12)))
    assert most == 3
