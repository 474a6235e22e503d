"""A bound on bytes a second, on a clock of the test's own."""

import math
import threading

import pytest

from everstep.transfer.pacer import Pacer


class Clock:
    """Time that passes only when somebody sleeps; sleepers on many threads sleep one after the other."""

    def __init__(self):
        self.now, self.slept = 1000.0, []
        self._lock = threading.Lock()

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        with self._lock:
            assert seconds > 0
            self.slept.append(seconds)
            self.now += seconds


def paced(rate):
    """A pacer and its clock."""
    clock = Clock()
    return Pacer(rate, clock=clock, sleep=clock.sleep), clock


def test_the_rate_is_kept():
    """The first bytes go at once, the next when those before them would be through."""
    pacer, clock = paced(100)
    pacer.take(50)
    assert clock.now == 1000.0
    pacer.take(10)
    assert clock.now == pytest.approx(1000.5)
    pacer.take(1)
    assert clock.now == pytest.approx(1000.6)


def test_time_that_nobody_used_is_not_saved_up():
    """After a pause there is no burst."""
    pacer, clock = paced(100)
    pacer.take(50)
    clock.now += 1000
    pacer.take(100)
    start = clock.now
    pacer.take(1)
    assert clock.now - start == pytest.approx(1.0)


def test_threads_share_one_rate():
    """Eight threads together are as slow as one would be."""
    pacer, clock = paced(1000)

    def work():
        for _ in range(25):
            pacer.take(10)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # the 200th begins when 199 * 10 bytes are through; sleepers overlap, so the clock may run ahead a little
    assert clock.now - 1000.0 >= 1.99 - 1e-6


def test_without_a_bound_nobody_waits():
    """Infinity is the default."""
    clock = Clock()
    pacer = Pacer(clock=clock, sleep=clock.sleep)
    for _ in range(3):
        pacer.take(2**40)
    assert clock.slept == []
    assert pacer.bytes_per_s == math.inf


def test_hurry_frees_those_who_wait():
    """At once, and all that come later."""
    waits, hurried = threading.Event(), threading.Event()

    def sleep(_seconds):
        waits.set()
        assert hurried.wait(30)

    pacer = Pacer(1, clock=lambda: 0.0, sleep=sleep)
    pacer.take(1_000_000)
    waiter = threading.Thread(target=pacer.take, args=(1,), daemon=True)
    waiter.start()
    assert waits.wait(30)
    assert waiter.is_alive()
    pacer.hurry()
    hurried.set()
    waiter.join(30)
    assert not waiter.is_alive()
    pacer.take(10**9)
    assert pacer.bytes_per_s == math.inf


def test_waiting_is_cut_into_naps():
    """So that a hurry is heard soon, whatever was to be waited for."""
    pacer, clock = paced(1)
    pacer.take(3)
    pacer.take(1)
    assert max(clock.slept) <= 0.05
    assert sum(clock.slept) == pytest.approx(3)


@pytest.mark.parametrize("rate", [0, -1, math.nan])
def test_a_rate_that_never_ends_is_refused(rate):
    """Zero, less, and no number."""
    with pytest.raises(ValueError, match="never end"):
        Pacer(rate)
