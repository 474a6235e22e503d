"""A fault at each store call of a training: what was acknowledged restores, nothing partial is ever seen."""

import pytest

from everstep.errors import EverstepError
from everstep.store.count import Count
from everstep.store.fault import AtRandom, Fault, Injection, Kind, Scripted
from everstep.store.memory import MemoryStore
from everstep.store.retry import Retry
from tests.faults.sessions import crashing, recovered, train


def calls_of_a_training() -> int:
    """How many store calls an undisturbed training makes."""
    store = Count(MemoryStore())
    train(store, [])
    return sum(store.calls.values())


CALLS = calls_of_a_training()


def test_there_are_calls_to_stop_at():
    """The sweep below really covers a training: claims, plans, packs, indexes, manifests, records."""
    assert CALLS > 25


@pytest.mark.parametrize("kind", [Kind.CRASH_BEFORE, Kind.CRASH_AFTER])
@pytest.mark.parametrize("at", range(1, CALLS + 1))
def test_a_crash_at_any_call_loses_nothing_acknowledged(at, kind):
    """The process dies before or after its n-th store call (faults 1, 2)."""
    inner, acknowledged = MemoryStore(), []
    store = Fault(inner, Scripted(Injection(kind=kind, at=at)))
    assert crashing(store, acknowledged) is not None
    assert recovered(inner) >= max(acknowledged, default=0)


@pytest.mark.parametrize(
    "kind", [Kind.BEFORE, Kind.AFTER, Kind.REPEATED, Kind.LATE, Kind.THROTTLED, Kind.CONFLICT]
)
@pytest.mark.parametrize("at", range(1, CALLS + 1))
def test_a_passing_fault_at_any_call_is_survived_or_told(at, kind):
    """Lost requests, lost answers, repeats, late arrivals: with retries it completes, and nothing is there twice."""
    inner, acknowledged = MemoryStore(), []
    store = Fault(inner, Scripted(Injection(kind=kind, at=at)))
    error = crashing(Retry(store, sleep=lambda _s: None), acknowledged)
    store.land()
    assert error is None, error
    assert recovered(inner) == 3


@pytest.mark.parametrize("kind", [Kind.BEFORE, Kind.AFTER, Kind.LATE, Kind.FULL, Kind.DENIED, Kind.TAKEN])
@pytest.mark.parametrize("at", range(1, CALLS + 1))
def test_an_error_without_retry_never_loses_what_was_acknowledged(at, kind):
    """The training may stop with an error; every step it was told is durable stays so."""
    inner, acknowledged = MemoryStore(), []
    store = Fault(inner, Scripted(Injection(kind=kind, at=at)))
    error = crashing(store, acknowledged)
    assert error is None or isinstance(error, EverstepError)
    store.land()
    assert recovered(inner) >= max(acknowledged, default=0)


@pytest.mark.parametrize("kind", [Kind.FLIPPED, Kind.TORN, Kind.SHORT])
@pytest.mark.parametrize("at", range(1, CALLS + 1))
def test_wrong_bytes_at_any_call_are_never_taken_for_right_ones(at, kind):
    """A flipped bit or half an object, written or read, ends in an error or in the right bits."""
    inner, acknowledged = MemoryStore(), []
    store = Fault(inner, Scripted(Injection(kind=kind, at=at)))
    error = crashing(store, acknowledged)
    assert error is None or isinstance(error, EverstepError)
    try:
        recovered(inner)
    except EverstepError as told:
        assert told.exit_code in {3, 6}, told  # noqa: PT017


@pytest.mark.parametrize("seed", range(10))
def test_a_storm_of_faults_is_survived(seed):
    """30 % of the answers are 503, 429, 409 or lost: it completes with backoff, and nothing twice (fault 17)."""
    inner, acknowledged = MemoryStore(), []
    kinds = [Kind.BEFORE, Kind.AFTER, Kind.UNAVAILABLE, Kind.THROTTLED, Kind.CONFLICT, Kind.REPEATED]
    store = Fault(inner, AtRandom(seed, 0.3, kinds))
    assert crashing(Retry(store, sleep=lambda _s: None), acknowledged) is None
    assert recovered(inner) == 3
