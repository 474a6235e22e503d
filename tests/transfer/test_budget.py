"""Bytes that tasks take and give back."""

import threading

from everstep.transfer.budget import Budget


def waiting(budget, nbytes):
    """A thread that wants bytes, and the event that says it has them."""
    begun = threading.Event()

    def work():
        budget.begin(nbytes)
        begun.set()

    threading.Thread(target=work, daemon=True).start()
    return begun


def test_a_task_waits_for_the_bytes_it_needs():
    """What another gives back lets it begin, also while the other still runs."""
    budget = Budget(100)
    budget.begin(70)
    begun = waiting(budget, 40)
    assert not begun.wait(0.02)
    budget.give_back(5)
    assert not begun.wait(0.02)
    budget.give_back(5)
    assert begun.wait(30)


def test_a_task_that_fits_does_not_wait():
    """Up to the last byte."""
    budget = Budget(100)
    for _ in range(4):
        assert waiting(budget, 25).wait(30)
    assert not waiting(budget, 1).wait(0.02)


def test_a_task_larger_than_all_goes_alone():
    """When the last one ends; and others wait until it has ended or given back."""
    budget = Budget(100)
    budget.begin(10)
    large = waiting(budget, 1000)
    assert not large.wait(0.02)
    budget.give_back(10)
    budget.end()
    assert large.wait(30)
    small = waiting(budget, 1)
    assert not small.wait(0.02)
    budget.give_back(1000)
    budget.end()
    assert small.wait(30)


def test_what_an_ended_task_keeps_is_not_free():
    """A box that is half filled keeps its bytes when the task that took them ends."""
    budget = Budget(100)
    budget.begin(90)
    budget.end()
    budget.begin(5)
    assert not waiting(budget, 6).wait(0.02)
    budget.give_back(90)
    assert waiting(budget, 80).wait(30)
