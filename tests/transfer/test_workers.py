"""Threads over tasks, and the bound on their memory."""

import threading

import pytest

from everstep.transfer.budget import Budget
from everstep.transfer.workers import run_all


def test_every_task_once():
    """Each task is done once, by at most so many threads, the caller's among them."""
    done, names = [], set()

    def work(task):
        done.append(task)
        names.add(threading.current_thread().name)

    run_all(range(100), work, workers=3, name="t")
    assert sorted(done) == list(range(100))
    assert names <= {"MainThread", "t-1", "t-2", threading.current_thread().name}


def test_the_first_error_stops_the_rest():
    """After an error no task is begun; the error is raised, and those under way have ended."""
    begun = []

    def work(task):
        begun.append(task)
        if task == 5:
            raise KeyError(task)

    with pytest.raises(KeyError, match="5"):
        run_all(range(10_000), work, workers=2, name="t")
    assert len(begun) < 10_000


def test_an_error_that_is_no_exception():
    """What stops a process stops the caller, from whichever thread it came."""

    def work(_task):
        raise SystemExit(75)

    with pytest.raises(SystemExit):
        run_all(range(4), work, workers=4, name="t")


def test_the_budget_bounds_what_runs_together():
    """Tasks that run at once never have more than the budget, unless one is alone."""
    budget, lock = Budget(100), threading.Lock()
    used = peak = 0

    def work(nbytes):
        nonlocal used, peak
        budget.begin(nbytes)
        with lock:
            used += nbytes
            peak = max(peak, used if nbytes < 500 else 0)
        with lock:
            used -= nbytes
        budget.give_back(nbytes)
        budget.end()

    run_all([40, 30, 60, 500, 10, 90, 40, 500, 20] * 20, work, workers=8, name="t")
    assert 0 < peak <= 100
