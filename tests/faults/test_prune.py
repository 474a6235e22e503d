"""Faults at every call of a prune and a sweep: crashes, lost, late and repeated answers, wrong bytes, wrong clocks."""

import functools
import itertools

import pytest

from everstep.errors import EverstepError
from everstep.store.count import Count
from everstep.store.fault import Crashed, Fault, Injection, Kind, Scripted
from everstep.store.memory import MemoryStore
from everstep.store.retry import Retry
from tests.faults import pruning as p
from tests.repository.worlds import keys

STRUCK = (p.last_two, p.sweep_all, p.prune_child, p.bring_back, p.tag_the_third, p.move_the_tag, p.restore)
operations = pytest.mark.parametrize("operation", STRUCK, ids=lambda operation: operation.__name__)
parts = pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.more)])


@functools.cache
def calls_of(operation: p.Operation) -> int:
    """How many store calls it makes."""
    store = Count(p.scene())
    operation(p.opened(store, 1))
    return sum(store.calls.values()) - 1  # opening is one


def struck(operation: p.Operation, kind: Kind, number: int, *, retries: bool = False) -> tuple:
    """The operation with one fault at its n-th call, and what it raised. What is late has arrived in the end."""
    store = p.scene()
    fault = Fault(store, Scripted(Injection(kind=kind, at=number + 1)))
    error = None
    try:
        operation(p.opened(Retry(fault, sleep=lambda _s: None) if retries else fault, 1))
    except (EverstepError, Crashed) as raised:
        error = raised
    fault.land()
    return store, error


def chosen(operation: p.Operation, kind: Kind, every: int) -> range:
    """The calls to strike at; other ones for each kind, so that together they are all."""
    return range(1 + list(Kind).index(kind) % every, calls_of(operation) + 1, every)


def test_the_calls_are_many():
    """Each operation has its calls; a prune has deletes among them."""
    assert all(calls_of(operation) > 5 for operation in STRUCK)
    assert calls_of(p.last_two) > 30


@parts
@pytest.mark.parametrize("kind", [Kind.CRASH_BEFORE, Kind.CRASH_AFTER], ids=lambda kind: kind.name)
@operations
def test_a_crash_at_any_call_loses_nothing_and_the_same_again_leaves_no_garbage(operation, kind, every):
    """The process dies before or after its n-th call; every checkpoint is whole, and what was begun goes on."""
    for number in chosen(operation, kind, every):
        store, _ = struck(operation, kind, number)
        p.sound(store)
        operation(p.opened(store, 2))
        p.sound(store)
        p.finished(store)


@parts
@pytest.mark.parametrize(
    "kind",
    [Kind.BEFORE, Kind.AFTER, Kind.REPEATED, Kind.LATE, Kind.SHORT, Kind.THROTTLED],
    ids=lambda kind: kind.name,
)
@operations
def test_a_passing_fault_at_any_call_is_survived(operation, kind, every):
    """Lost requests and answers, repeats, late arrivals: with retries all completes, and nothing is left over.

    But for a tag that is moved while a delete of its old record is late: the name may be gone afterwards.
    """
    for number in chosen(operation, kind, every):
        store, error = struck(operation, kind, number, retries=True)
        assert error is None, (number, error)
        p.sound(store)
        p.finished(store)


@parts
@pytest.mark.parametrize(
    "kind", [Kind.DENIED, Kind.FULL, Kind.LATE, Kind.AFTER, Kind.TAKEN], ids=lambda kind: kind.name
)
@operations
def test_an_error_at_any_call_leaves_all_whole(operation, kind, every):
    """Without retries it may stop with an error of the tree; the same again goes on."""
    for number in chosen(operation, kind, every):
        store, error = struck(operation, kind, number)
        assert error is None or isinstance(error, EverstepError)
        p.sound(store)
        operation(p.opened(store, 2))
        p.finished(store)


@parts
@pytest.mark.parametrize("kind", [Kind.FLIPPED, Kind.TORN, Kind.SHORT], ids=lambda kind: kind.name)
@pytest.mark.parametrize("operation", [p.last_two, p.sweep_all], ids=lambda operation: operation.__name__)
def test_wrong_bytes_at_any_call_delete_nothing_that_is_live(operation, kind, every):
    """A flipped bit or half an object, read or written, ends in an error or in the right deletes."""
    for number in chosen(operation, kind, every):
        store, error = struck(operation, kind, number)
        assert error is None or isinstance(error, EverstepError)
        p.sound(store)


@pytest.mark.parametrize("shift", [-1e9, -90_000.0, 90_000.0, 1e9])
def test_wrong_clocks_here_and_at_the_store_change_nothing_of_what_is_live(shift):
    """This machine's clock or the store's is days off, or stands still: only the grace depends on the store's."""
    ticks = itertools.count()
    store = MemoryStore(clock=lambda: 1.7e9 + shift * (next(ticks) % 3))
    for key, body in p.objects().items():
        store.create(key, body)
    for operation in (p.last_two, p.save, p.sweep_all, p.fork_the_third, p.last_one, p.sweep_all):
        try:
            operation(p.opened(store, 3))
        except p.REFUSALS:
            continue
        p.sound(store)
    p.finished(store)


@operations
def test_what_is_left_is_the_same_as_without_any_fault(operation):
    """After a crash in the middle and the same again the store has the objects that one undisturbed go leaves."""
    plain = p.scene()
    operation(p.opened(plain, 1))
    store, _ = struck(operation, Kind.CRASH_BEFORE, calls_of(operation) // 2)
    operation(p.opened(store, 1))
    assert [key for key in keys(store) if not key.startswith("readers/")] == keys(plain)
