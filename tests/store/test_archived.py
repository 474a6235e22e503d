"""Objects in archive tiers: what the clouds' own emulators answer, and what a fault proxy answers in their place."""

import pytest

from everstep.errors import AlreadyExists, Archived
from everstep.events import Retried
from everstep.store.retry import Retry
from tests.emulators.proxy import Answer
from tests.emulators.tiers import archive, bring_back
from tests.store.clouds import opened

TIERS = {"s3": ["GLACIER", "DEEP_ARCHIVE"], "azure": ["Archive"]}


@pytest.fixture(params=["azure", "s3"])
def tiered(request):
    """Each cloud with tiers that must be waited for, behind a proxy."""
    yield from opened(request.param, request)


def read(store, verb):
    """One of the verbs that read bytes."""
    if verb == "get":
        return store.get("packs/p", 100)
    into = bytearray(5)
    store.get_range("packs/p", 0, memoryview(into))
    return bytes(into)


@pytest.mark.parametrize("verb", ["get", "get_range"])
def test_an_archived_object_is_told_at_once_and_can_be_read_once_it_is_back(tiered, verb, request):
    """Both emulators, moto and Azurite, refuse archived objects as the clouds do: `Archived` with key and tier,
    from one request however patient; back in the hot tier they are what they were. GCS gives every class at once.
    """
    store, events = tiered.store(), []
    for tier in TIERS[tiered.kind]:
        store.delete("packs/p")
        store.create("packs/p", b"hello")
        archive(request, store.url, "packs/p", tier)
        tiered.proxy.forget()
        with pytest.raises(Archived, match=tier) as caught:
            read(Retry(store, listener=events.append), verb)
        assert len(tiered.proxy.asked) == 1
        told = caught.value
        assert (told.fields["key"], told.fields["tier"], told.fields["coming"]) == ("packs/p", tier, False)
        assert told.fields["container"] in store.url
        assert (told.exit_code, told.retryable) == (1, False)
        bring_back(request, store.url, "packs/p")
        assert read(store, verb) == b"hello"
    assert [event for event in events if isinstance(event, Retried)] == []


def test_an_archived_object_holds_its_key_and_can_be_listed_and_deleted(tiered, request):
    """Only its bytes are out of reach: create says that the key is taken, a prune needs nothing else."""
    store = tiered.store()
    store.create("packs/p", b"hello")
    archive(request, store.url, "packs/p", TIERS[tiered.kind][0])
    with pytest.raises(AlreadyExists):
        store.create("packs/p", b"other")
    assert [(one.key, one.size) for one in store.list("packs/")] == [("packs/p", 5)]
    store.delete("packs/p")
    assert list(store.list("packs/")) == []


@pytest.mark.parametrize(
    ("kind", "status", "code", "coming", "tier"),
    [
        ("azure", 409, "BlobBeingRehydrated", True, "Archive"),
        ("azure", 409, "BlobArchived", False, "Archive"),
        ("s3", 403, "InvalidObjectState", False, "INTELLIGENT_TIERING"),
        ("s3", 403, "InvalidObjectState", False, ""),
    ],
)
def test_answers_that_no_emulator_gives(kind, status, code, coming, tier, request):
    """On its way back (Azurite brings back at once), a tier of S3 that moto lacks, a server that tells no tier: a proxy
    answers in their place with the documented bodies. A taken key of an archived object is `AlreadyExists`.
    """
    for cloud in opened(kind, request):
        store = cloud.store()
        told = f"<StorageClass>{tier}</StorageClass>" if kind == "s3" and tier else ""
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message>{told}</Error>"
        cloud.proxy.script = lambda _asked, body=body: Answer(status=status, body=body.encode())
        for verb in ("get", "get_range"):
            with pytest.raises(Archived) as caught:
                read(Retry(store, sleep=lambda _s: None), verb)
            assert (caught.value.fields["tier"], caught.value.fields["coming"]) == (tier, coming)
            assert ("call again" in caught.value.hint) == coming
        with pytest.raises(AlreadyExists, match="archived"):
            store.create("packs/p", b"x")
        assert len(cloud.proxy.asked) == 3
