"""Faults strike where the script has them, do what their kind says, and can be had again."""

import pytest

from everstep.errors import (
    AccessDenied,
    AlreadyExists,
    ObjectNotFound,
    ShortRead,
    StoreFull,
    StoreUnavailable,
)
from everstep.store.count import Count
from everstep.store.fault import AtRandom, Crashed, Fault, Injection, Kind, Scripted
from everstep.store.memory import MemoryStore
from tests.store.contract import StoreContract

BODY = bytes(range(200))


class TestFaultWithoutFaults(StoreContract):
    many = 300

    @pytest.fixture
    def store(self):
        return Fault(MemoryStore(), Scripted())


def faulty(kind: Kind, at: int = 1, verb: str = "") -> tuple[MemoryStore, Fault]:
    """A store with one object, ``old``, and one fault."""
    memory = MemoryStore()
    memory.create("old", BODY)
    return memory, Fault(memory, Scripted(Injection(kind=kind, at=at, verb=verb)))


def has(store: MemoryStore, key: str) -> bool:
    """Whether the key is there."""
    return any(entry.key == key for entry in store.list(key))


@pytest.mark.parametrize("kind", [Kind.BEFORE, Kind.THROTTLED, Kind.UNAVAILABLE, Kind.CONFLICT])
def test_requests_that_do_nothing(kind: Kind):
    """The error says what was injected and at which call, nothing is done, and the next call goes through."""
    memory, store = faulty(kind)
    with pytest.raises(StoreUnavailable, match=rf"create new: injected at call 1 \({kind.name} at call 1\)"):
        store.create("new", b"x")
    assert not has(memory, "new")
    store.create("new", b"x")
    assert (store.calls, store.injected) == (2, {kind: 1})


def test_lost_answers():
    """The request is done and the error says nothing of it, for each verb."""
    memory, store = faulty(Kind.AFTER, at=1, verb="create")
    with pytest.raises(StoreUnavailable):
        store.create("new", b"x")
    assert memory.get("new", 1) == b"x"
    memory, store = faulty(Kind.AFTER)
    with pytest.raises(StoreUnavailable):
        store.delete("old")
    assert not has(memory, "old")
    _, store = faulty(Kind.AFTER)
    with pytest.raises(StoreUnavailable):
        list(store.list(""))


@pytest.mark.parametrize(("kind", "error"), [(Kind.AFTER, StoreUnavailable), (Kind.CRASH_AFTER, Crashed)])
def test_lost_answers_that_were_errors(kind: Kind, error: type):
    """An answer that is lost is lost whatever it was: nobody hears that the key was taken or missing."""
    for ask in (lambda store: store.create("old", b""), lambda store: store.get("none", 1)):
        _, store = faulty(kind)
        with pytest.raises(error):
            ask(store)


def test_repeated_requests():
    """A create that arrives twice is made, and its answer is the second one's: AlreadyExists."""
    memory, store = faulty(Kind.REPEATED)
    with pytest.raises(AlreadyExists):
        store.create("new", b"x")
    assert memory.get("new", 1) == b"x"
    _, store = faulty(Kind.REPEATED)
    store.delete("old")
    _, store = faulty(Kind.REPEATED)
    assert [entry.key for entry in store.list("")] == ["old", "old"]


def test_late_requests():
    """A late create arrives a few calls later with the bytes of then, or when it is told to."""
    memory, store = faulty(Kind.LATE)
    body = bytearray(b"then")
    with pytest.raises(StoreUnavailable):
        store.create("new", body)
    body[:] = b"now!"
    assert not has(memory, "new")
    for _ in range(3):
        store.get("old", 1000)
    assert memory.get("new", 4) == b"then"
    memory, store = faulty(Kind.LATE)
    with pytest.raises(StoreUnavailable):
        store.delete("old")
    assert has(memory, "old")
    store.land()
    assert not has(memory, "old")


def test_late_create_never_overwrites():
    """A late create that finds its key taken is lost, and nobody hears of it."""
    memory, store = faulty(Kind.LATE)
    with pytest.raises(StoreUnavailable):
        store.create("new", b"late")
    store.create("new", b"first")
    store.land()
    assert memory.get("new", 5) == b"first"


def test_torn_bytes():
    """Half of the bytes are stored or answered, without an error."""
    memory, store = faulty(Kind.TORN)
    store.create("new", BODY)
    assert memory.get("new", 200) == BODY[:100]
    _, store = faulty(Kind.TORN)
    assert store.get("old", 200) == BODY[:100]


def test_short_reads():
    """A read that comes short is an error; half of the range may be filled."""
    _, store = faulty(Kind.SHORT)
    with pytest.raises(ShortRead):
        store.get_range("old", 0, memoryview(bytearray(200)))
    _, store = faulty(Kind.SHORT)
    with pytest.raises(ShortRead):
        store.get("old", 200)
    memory, store = faulty(Kind.SHORT)
    memory.create("other", b"")
    entries = store.list("")
    assert next(entries).key == "old"
    with pytest.raises(StoreUnavailable):
        next(entries)


def test_flipped_bits():
    """Exactly one bit differs in what is stored or answered; the stored object and the caller's bytes stay."""
    body = bytearray(BODY)
    memory, store = faulty(Kind.FLIPPED)
    store.create("new", body)
    into = bytearray(200)
    _, other = faulty(Kind.FLIPPED)
    other.get_range("old", 0, memoryview(into))
    _, third = faulty(Kind.FLIPPED)
    for got in (memory.get("new", 200), into, third.get("old", 200)):
        assert sum((a ^ b).bit_count() for a, b in zip(got, BODY, strict=True)) == 1
    assert body == BODY == memory.get("old", 200)


def test_other_answers():
    """412 without an object, 403 and a full store are the errors a real store gives."""
    for kind, error in ((Kind.TAKEN, AlreadyExists), (Kind.DENIED, AccessDenied), (Kind.FULL, StoreFull)):
        memory, store = faulty(kind)
        with pytest.raises(error):
            store.create("new", b"x")
        assert not has(memory, "new")


@pytest.mark.parametrize(("kind", "done"), [(Kind.CRASH_BEFORE, False), (Kind.CRASH_AFTER, True)])
def test_after_a_crash_nothing_goes(kind: Kind, done: bool):
    """A crash is no Exception, its request was done or not, and every further call crashes too."""
    memory, store = faulty(kind, at=2)
    store.get("old", 200)
    with pytest.raises(Crashed):
        store.create("new", b"x")
    assert not issubclass(Crashed, Exception)
    assert has(memory, "new") is done
    for verb in (
        lambda: store.get("old", 200),
        lambda: store.create("x", b""),
        lambda: store.delete("old"),
        lambda: store.list(""),
        lambda: store.get_range("old", 0, memoryview(bytearray(1))),
    ):
        with pytest.raises(Crashed):
            verb()
    assert (store.crashed, store.calls) == (True, 2)


def test_scripts_count_calls_of_one_verb():
    """An injection with a verb counts the calls of that verb only."""
    memory, store = faulty(Kind.UNAVAILABLE, at=2, verb="create")
    store.create("a", b"")
    store.get("old", 200)
    store.delete("none")
    with pytest.raises(StoreUnavailable, match="call 4"):
        store.create("b", b"")
    with pytest.raises(ObjectNotFound):
        memory.get("b", 1)


def test_random_faults_are_repeatable():
    """The same seed gives the same faults, another one others, at about the rate; errors show the seed."""

    def run(seed: int) -> list[str]:
        store = Fault(Count(MemoryStore()), AtRandom(seed, 0.3, [Kind.BEFORE, Kind.AFTER], verbs=["create"]))
        seen = []
        for n in range(200):
            store.delete(f"k{n}")
            try:
                store.create(f"k{n}", b"")
                seen.append("")
            except StoreUnavailable as error:
                seen.append(str(error))
        return seen

    first = run(7)
    assert first == run(7)
    assert first != run(8)
    struck = [text for text in first if text]
    assert 30 < len(struck) < 90
    assert all("seed 7, rate 0.3" in text for text in struck)
