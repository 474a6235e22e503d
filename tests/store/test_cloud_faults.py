"""Clouds that cut, lose, throttle, lie and send away: the right error or the whole work, nothing twice."""

import random
import traceback
from concurrent.futures import ThreadPoolExecutor

import pytest

from everstep.errors import (
    AccessDenied,
    AlreadyExists,
    EverstepError,
    NotFound,
    ObjectNotFound,
    ShortRead,
    StoreError,
    StoreFull,
    StoreUnavailable,
    UnsuitableStore,
)
from everstep.events import Retried
from everstep.store.retry import Retry
from tests.emulators.proxy import Answer, Change, CutAnswer, CutRequest, Lose, Pass, Proxy
from tests.store.clouds import SECRET, behind, behind_s3

__all__ = ["behind", "behind_s3"]

MIB = 1 << 20


def patient(store, events=None):
    """The store as `open_store` gives it, without the waiting."""
    return Retry(
        store, sleep=lambda _s: None, listener=events.append if events is not None else lambda _e: None
    )


def first(action):
    """Does ``action`` to the first request and passes the others."""
    return lambda asked: action if asked.number == 1 else Pass()


def shown(error: BaseException) -> str:
    """All that a log could show of an error, what it came from included."""
    texts = []
    while error is not None:
        texts += [
            str(error),
            repr(error),
            repr(getattr(error, "fields", "")),
            *traceback.format_exception(error),
        ]
        error = error.__cause__ or error.__context__
    return "\n".join(texts)


@pytest.mark.parametrize("size", [1, 100_000, 24 * MIB])
def test_create_is_one_request_of_any_size(behind, size):
    """A body goes up in one conditional PUT, never in parts."""
    store = behind.store()
    body = random.Random(1).randbytes(size)
    store.create("packs/p", body)
    assert [(asked.method, asked.length) for asked in behind.proxy.asked] == [("PUT", size)]
    headers = behind.proxy.asked[0].headers
    assert headers.get("if-none-match") == "*" or headers.get("x-goog-if-generation-match") == "0"
    assert store.get("packs/p", size) == body


def test_each_verb_is_one_request(behind):
    """get, get_range, delete and a short list ask once each."""
    store = behind.store()
    store.create("a/b", b"hello")
    for verb in (
        lambda: store.get("a/b", 5),
        lambda: store.get_range("a/b", 1, memoryview(bytearray(3))),
        lambda: list(store.list("a/")),
        lambda: store.delete("a/b"),
    ):
        behind.proxy.forget()
        verb()
        assert len(behind.proxy.asked) == 1


def test_a_list_asks_for_pages_as_they_are_needed(behind_s3):
    """The first key of a long list costs one page; a list from near the end begins there."""
    store = behind_s3.store()
    keys = [f"k/{n:05d}" for n in range(2_300)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda key: store.create(key, b""), keys))
    behind_s3.proxy.forget()
    pages = store.list("k/")
    assert next(pages).key == keys[0]
    assert len(behind_s3.proxy.asked) == 1
    assert [one.key for one in pages] == keys[1:]
    assert len(behind_s3.proxy.asked) == 3
    behind_s3.proxy.forget()
    assert [one.key for one in store.list("k/", keys[2_290])] == keys[2_291:]
    assert [one.key for one in store.list("k/022")] == keys[2_200:]
    assert len(behind_s3.proxy.asked) == 2


def test_a_repeated_list_page_counts_once(behind):
    """A server that gives entries twice shows each once."""
    store = behind.store()
    for n in range(5):
        store.create(f"l/{n}", b"")

    def twice(answer: Answer) -> Answer:
        tag = b"Blob" if behind.kind == "azure" else b"Contents"
        begin, end = answer.body.index(b"<" + tag + b">"), answer.body.rindex(b"</" + tag + b">")
        entries = answer.body[begin : end + len(tag) + 3]
        body = answer.body.replace(entries, entries * 2)
        return Answer(status=answer.status, headers=answer.headers, body=body)

    behind.proxy.script = lambda _asked: Change(twice)
    assert [one.key for one in store.list("l/")] == [f"l/{n}" for n in range(5)]


@pytest.mark.parametrize("cut", [CutRequest(0), CutRequest(MIB), Answer(status=503), Answer(status=429)])
def test_a_create_that_never_arrived_is_made_on_the_second_try(behind, cut):
    """A reset inside a PUT, or throttling, is StoreUnavailable, and one more try makes the object."""
    store = behind.store()
    body = random.Random(2).randbytes(3 * MIB)
    behind.proxy.script = first(cut)
    with pytest.raises(StoreUnavailable, match="packs/p"):
        store.create("packs/p", body)
    behind.proxy.forget()
    behind.proxy.script = first(cut)
    events = []
    patient(store, events).create("packs/p", body)
    assert [type(event) for event in events] == [Retried]
    assert len(behind.proxy.reached) == 1
    assert store.get("packs/p", len(body)) == body


def test_a_lost_answer_of_create_is_told_as_taken(behind):
    """The object was made, the answer lost: the next try says AlreadyExists, and the bytes are one's own."""
    store = behind.store()
    behind.proxy.script = first(Lose())
    with pytest.raises(AlreadyExists):
        patient(store).create("commits/c", b"mine")
    assert [asked.method for asked in behind.proxy.reached] == ["PUT", "PUT"]
    assert store.get("commits/c", 10) == b"mine"


@pytest.mark.parametrize(
    "cut", [Lose(), CutAnswer(0), CutAnswer(MIB), Answer(status=500), Answer(status=429)]
)
def test_reads_that_break_are_read_again_whole(behind, cut):
    """A reset before or inside an answer is StoreUnavailable or ShortRead, and another try has every byte."""
    store = behind.store()
    body = random.Random(3).randbytes(2 * MIB)
    store.create("k", body)
    into = bytearray(2 * MIB)
    for read in (
        lambda store: store.get_range("k", 0, memoryview(into)),
        lambda store: into.__setitem__(slice(None), store.get("k", 2 * MIB)),
    ):
        behind.proxy.forget()
        behind.proxy.script = first(cut)
        with pytest.raises((StoreUnavailable, ShortRead), match="k"):
            read(store)
        behind.proxy.forget()
        behind.proxy.script = first(cut)
        into[:] = bytes(2 * MIB)
        read(patient(store))
        assert into == body


def _whole(answer: Answer) -> Answer:
    headers = {name: value for name, value in answer.headers.items() if name.lower() != "content-range"}
    return Answer(status=200, headers=headers, body=answer.body)


def _shorter(answer: Answer) -> Answer:
    return Answer(status=206, headers=answer.headers, body=answer.body[:-1])


def _longer(answer: Answer) -> Answer:
    return Answer(status=206, headers=answer.headers, body=answer.body + b"x")


def _elsewhere(answer: Answer) -> Answer:
    headers = {
        name: "bytes 7-106/1000" if name.lower() == "content-range" else value
        for name, value in answer.headers.items()
    }
    return Answer(status=206, headers=headers, body=answer.body)


@pytest.mark.parametrize("lie", [_whole, _shorter, _longer, _elsewhere])
def test_a_range_of_another_length_or_place_is_never_used(behind, lie):
    """A 200, a short, a long or a shifted answer to a ranged GET is ShortRead; the next try is right."""
    store = behind.store()
    body = random.Random(4).randbytes(1000)
    store.create("k", body)
    into = bytearray(100)
    behind.proxy.script = lambda _asked: Change(lie)
    with pytest.raises(ShortRead, match="k"):
        store.get_range("k", 300, memoryview(into))
    behind.proxy.forget()
    behind.proxy.script = first(Change(lie))
    patient(store).get_range("k", 300, memoryview(into))
    assert into == body[300:400]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_storm_of_refusals_is_weathered_and_nothing_is_done_twice(behind, seed):
    """With 30 % of answers 503, 429 or resets, all work completes and each object reaches the server once."""
    store = behind.store()
    drawn = random.Random(seed)
    bad = [Answer(status=503), Answer(status=429), Answer(status=500), CutRequest(10)]
    behind.proxy.script = lambda _asked: drawn.choice(bad) if drawn.random() < 0.3 else Pass()
    calm = patient(store)
    bodies = {f"storm/{n:02d}": random.Random(n).randbytes(20_000 + n) for n in range(40)}
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda key: calm.create(key, bodies[key]), bodies))
    puts = [asked.path for asked in behind.proxy.reached if asked.method == "PUT"]
    assert len(puts) == len(set(puts)) == 40
    assert len(behind.proxy.asked) > 40
    assert [one.key for one in calm.list("storm/")] == sorted(bodies)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda key: calm.get(key, 30_000), bodies)) == list(bodies.values())
        list(pool.map(calm.delete, bodies))
    assert list(calm.list("storm/")) == []


@pytest.mark.parametrize("code", ["ConditionalRequestConflict", "OperationAborted"])
def test_a_conflict_in_a_race_is_tried_again(behind_s3, code):
    """S3 answers 409 while another writer is at the key; who won is known at the next try."""
    store = behind_s3.store()
    behind_s3.proxy.script = first(Answer(status=409, body=f"<Error><Code>{code}</Code></Error>".encode()))
    patient(store).create("k", b"1")
    assert store.get("k", 1) == b"1"


@pytest.mark.parametrize(
    ("status", "code"), [(412, ""), (412, "PreconditionFailed"), (403, "UnauthorizedBlobOverwrite")]
)
def test_a_taken_key_is_told_in_several_ways(behind, status, code):
    """A bare 412, and Azure's 403 to a signature that may create but not write, are AlreadyExists."""
    store = behind.store()
    body = f"<Error><Code>{code}</Code></Error>".encode() if code else b""
    behind.proxy.script = lambda _asked: Answer(status=status, body=body)
    with pytest.raises(AlreadyExists, match="k"):
        store.create("k", b"1")


def test_a_bare_conflict_is_azures_word_for_a_taken_key_and_elsewhere_a_race(behind):
    """409 without a code: what it says differs by cloud."""
    store = behind.store()
    behind.proxy.script = lambda _asked: Answer(status=409)
    with pytest.raises(AlreadyExists if behind.kind == "azure" else StoreUnavailable):
        store.create("k", b"1")


@pytest.mark.parametrize(
    ("status", "code", "wanted"),
    [
        (403, "AccessDenied", AccessDenied),
        (401, "", AccessDenied),
        (400, "ExpiredToken", AccessDenied),
        (403, "SignatureDoesNotMatch", AccessDenied),
        (507, "", StoreFull),
        (403, "QuotaExceeded", AccessDenied),
        (413, "EntityTooLarge", StoreError),
        (501, "NotImplemented", StoreError),
        (400, "RequestTimeout", StoreUnavailable),
        (408, "", StoreUnavailable),
        (400, "Whatever", StoreError),
    ],
)
def test_refusals_are_told_apart_without_a_secret(behind, status, code, wanted):
    """Each answer becomes one kind of error with key, status and host, and no word of the answer's own text."""
    store = behind.store()
    body = f"<Error><Code>{code}</Code><Message>{SECRET}</Message></Error>".encode()
    behind.proxy.script = lambda _asked: Answer(status=status, body=body)
    for ask in (
        lambda: store.create("some/key", b"1"),
        lambda: store.get("some/key", 1),
        lambda: list(store.list("some/key")),
        lambda: store.delete("some/key"),
    ):
        with pytest.raises(wanted, match="some/key") as caught:
            ask()
        assert SECRET not in shown(caught.value)
        if wanted is AccessDenied:
            assert "used: " in caught.value.hint


def test_credentials_that_expire_during_a_save_are_an_access_error(behind):
    """The objects before stay; the error names the variable that was used; events hold no secret."""
    store = behind.store()
    events = []
    calm = patient(store, events)
    calm.create("a", b"1")
    body = f"<Error><Code>ExpiredToken</Code><Message>{SECRET}</Message></Error>".encode()
    behind.proxy.script = lambda asked: (
        Answer(status=503) if asked.number == 2 else Answer(status=403, body=body)
    )
    with pytest.raises(AccessDenied) as caught:
        calm.create("b", b"2")
    name = {"azure": "AZURE_STORAGE_KEY", "s3": "AWS_ACCESS_KEY_ID", "gcs": "GOOGLE_OAUTH_ACCESS_TOKEN"}
    assert name[behind.kind] in caught.value.hint
    behind.proxy.forget()
    assert calm.get("a", 1) == b"1"
    assert len(events) == 1
    assert SECRET not in repr(events) + shown(caught.value) + repr(store)


def test_a_redirect_to_another_host_is_not_followed(behind):
    """The other host sees nothing; the error names the one that sent us away."""
    store = behind.store()
    store.create("k", b"1")
    with Proxy("http://127.0.0.1:1") as other:
        port = other.endpoint.rpartition(":")[2]
        to = {"Location": f"http://localhost:{port}/stolen?sig={SECRET}"}
        behind.proxy.script = lambda _asked: Answer(status=307, headers=to)
        for ask in (
            lambda: store.create("l", b"1"),
            lambda: store.get("k", 1),
            lambda: store.get_range("k", 0, memoryview(bytearray(1))),
            lambda: list(store.list("k")),
            lambda: store.delete("k"),
        ):
            with pytest.raises(UnsuitableStore, match=r"127\.0\.0\.1 sends requests on") as caught:
                ask()
            assert SECRET not in shown(caught.value)
        assert other.asked == []


def test_a_missing_container_is_not_a_missing_object(behind):
    """It is told with the container's name and what to do; a reader must not take it for an empty store."""
    store = behind.open("x")
    place = {"azure": "ContainerNotFound", "s3": "NoSuchBucket", "gcs": "NoSuchBucket"}[behind.kind]
    body = f"<Error><Code>{place}</Code></Error>".encode()
    behind.proxy.script = lambda _asked: Answer(status=404, body=body)
    for ask in (lambda: store.create("k", b""), lambda: store.get("k", 1), lambda: list(store.list(""))):
        with pytest.raises(NotFound, match="there is no") as caught:
            ask()
        assert not isinstance(caught.value, ObjectNotFound)
        assert "create the" in caught.value.hint


def test_a_host_that_is_not_there_is_worth_another_try(behind):
    """Nobody listens: StoreUnavailable, with the host."""
    store = behind.store()
    behind.proxy._server.socket.close()
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1") as caught:
        store.get("k", 1)
    assert isinstance(caught.value, EverstepError)
