"""Errors that may pass are asked again about, others are not."""

import pytest

from everstep.errors import (
    AccessDenied,
    AlreadyExists,
    EverstepError,
    ObjectNotFound,
    ShortRead,
    StoreUnavailable,
)
from everstep.events import Retried
from everstep.store.count import Count
from everstep.store.fault import AtRandom, Fault, Injection, Kind, Scripted
from everstep.store.memory import MemoryStore
from everstep.store.retry import Retry, RetryPolicy
from tests.store.contract import StoreContract

LOST = [Kind.BEFORE, Kind.THROTTLED, Kind.UNAVAILABLE, Kind.CONFLICT]


class TestRetryOverTrouble(StoreContract):
    """Fault 17: with 30 % of the answers 429, 503, 409 or resets, every promise of a store is kept."""

    many = 300

    @pytest.fixture
    def store(self):
        trouble = Fault(MemoryStore(), AtRandom(20261121, 0.3, [*LOST, Kind.SHORT]))
        return Retry(trouble, RetryPolicy(tries=40, short_reads=40), sleep=lambda _s: None)


def troubled(*injections: Injection) -> tuple[Count, Retry, list[float], list[Retried]]:
    """A store with faults behind a retry: the count below it, the waits and the events."""
    memory = MemoryStore()
    memory.create("old", b"12345")
    count = Count(Fault(memory, Scripted(*injections)))
    waits: list[float] = []
    events: list = []
    store = Retry(
        count,
        RetryPolicy(tries=4, first_s=1.0, longest_s=3.0),
        waits.append,
        events.append,
        drawn=lambda: 1.0,
    )
    return count, store, waits, events


@pytest.mark.parametrize("kind", [*LOST, Kind.LATE])
def test_waits_grow_and_are_told(kind: Kind):
    """Each wait is told before it, doubles, and has a bound; the answer comes when the trouble is over."""
    count, store, waits, events = troubled(*(Injection(kind=kind, at=n) for n in (1, 2, 3)))
    assert store.get("old", 5) == b"12345"
    assert waits == [1.0, 2.0, 3.0]
    assert [(it.verb, it.key, it.wait_s) for it in events] == [("get", "old", wait) for wait in waits]
    assert count.log == [("get", "old")] * 4


def test_it_gives_up_with_the_last_error():
    """After the last try the error itself is raised, and there is no wait after it."""
    _, store, waits, _ = troubled(*(Injection(kind=Kind.UNAVAILABLE, at=n) for n in range(1, 10)))
    with pytest.raises(StoreUnavailable, match="call 4"):
        store.get("old", 5)
    assert len(waits) == 3


@pytest.mark.parametrize(
    ("ask", "kind"),
    [
        (lambda store: store.get("none", 1), ObjectNotFound),
        (lambda store: store.create("old", b""), AlreadyExists),
        (lambda store: store.get("../x", 1), EverstepError),
    ],
)
def test_other_errors_are_raised_at_once(ask, kind: type):
    """An error that will not pass is asked about once."""
    count, store, waits, _ = troubled()
    with pytest.raises(kind):
        ask(store)
    assert (count.calls.total(), waits) == (1, [])


def test_access_denied_is_raised_at_once():
    """Missing credentials are not asked about again."""
    count, store, waits, _ = troubled(Injection(kind=Kind.DENIED, at=1))
    with pytest.raises(AccessDenied):
        store.delete("old")
    assert (count.calls.total(), waits) == (1, [])


def test_lost_answer_of_a_create_is_already_exists():
    """A create that succeeded and whose answer was lost says AlreadyExists: only the caller can read back."""
    count, store, _, _ = troubled(Injection(kind=Kind.AFTER, at=1))
    with pytest.raises(AlreadyExists):
        store.create("new", b"mine")
    assert store.get("new", 4) == b"mine"
    assert count.calls["create"] == 2


def test_short_reads_are_tried_a_few_times():
    """A range that stays short is given up early: an object that was cut does not grow."""
    count, store, _, _ = troubled()
    into = memoryview(bytearray(6))
    with pytest.raises(ShortRead):
        store.get_range("old", 0, into)
    assert count.calls["get_range"] == 3


def test_short_read_that_passes():
    """A range that was short once is read again in whole."""
    _, store, _, _ = troubled(Injection(kind=Kind.SHORT, at=1))
    into = bytearray(5)
    store.get_range("old", 0, memoryview(into))
    assert into == b"12345"


@pytest.mark.parametrize("kind", [Kind.SHORT, Kind.AFTER])
def test_a_broken_list_goes_on_where_it_was(kind: Kind):
    """A list that breaks off is continued behind its last key: each key comes once."""
    memory = MemoryStore()
    keys = [f"k{n}" for n in range(5)]
    for key in keys:
        memory.create(key, b"")
    fault = Fault(memory, Scripted(*(Injection(kind=kind, at=n) for n in range(1, 4))))
    store = Retry(fault, RetryPolicy(tries=2), sleep=lambda _s: None)
    if kind is Kind.AFTER:
        store = Retry(fault, RetryPolicy(tries=4), sleep=lambda _s: None)
    assert [entry.key for entry in store.list("k")] == keys
    assert fault.calls == 4


def test_waits_are_spread():
    """Ranks that were throttled together come back apart: a wait is drawn, and never zero."""
    policy = RetryPolicy(first_s=1.0, longest_s=8.0)
    assert policy.wait_s(1, 0.0) == pytest.approx(0.1)
    assert policy.wait_s(1, 0.5) == pytest.approx(0.55)
    assert policy.wait_s(3, 1.0) == pytest.approx(4.0)
    assert policy.wait_s(50, 1.0) == pytest.approx(8.0)
