"""Fault 22 for the metadata objects: whatever bit flips in one of them, it is found and its key is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from everstep.errors import IntegrityError
from everstep.repository import keys as k
from everstep.repository.attempts import find_attempt
from everstep.repository.catalogue import find_run, newest
from everstep.repository.opening import open_repository
from everstep.repository.plans import read_plan
from everstep.repository.reading import read_indexes, read_manifest
from everstep.repository.tags import find_tag, set_tag
from tests.repository.worlds import keys, overwrite, put, started

Read = Callable[[], object]


def objects():
    """A small repository, and how each of its metadata objects is read, by key."""
    repo, attempt = started()
    made = put(repo, attempt, 7, {"w": b"weights"}, metrics={"loss": 0.5})
    set_tag(repo, "best", made)
    index = next(key for key in keys(repo.store, k.save_prefix("run", made.save)) if "/rank-" in key)
    return repo, {
        k.STORE_KEY: lambda: open_repository(repo.store, create=False),
        k.run_key("run"): lambda: find_run(repo, "run"),
        k.attempt_key("run", 1): lambda: find_attempt(repo, "run", 1),
        k.plan_key("run", made.save): lambda: read_plan(repo, "run", made.save),
        index: lambda: read_indexes(repo, made),
        k.manifest_key("run", made.save, made.manifest): lambda: read_manifest(repo, made),
        k.commit_key("run", made.save): lambda: newest(repo, "run"),
        k.tag_key("best"): lambda: find_tag(repo, "best"),
    }


def test_every_metadata_object_is_covered():
    """All that a save, a claim and a tag leave, but for packs."""
    repo, found = objects()
    assert sorted(found) == [key for key in keys(repo.store) if not key.startswith("packs/")]


@pytest.mark.parametrize("which", range(8))
def test_any_flipped_bit_is_an_integrity_error_that_names_the_key(which):
    """Each bit of each byte, one at a time; also a byte less, a byte more, and nothing at all."""
    repo, found = objects()
    key = list(found)[which]
    sound = repo.store.get(key, 10**6)
    found[key]()
    damaged = [sound[:-1], sound + b" ", b"", sound[: len(sound) // 2]]
    for at in range(len(sound) * 8):
        body = bytearray(sound)
        body[at // 8] ^= 1 << at % 8
        damaged.append(bytes(body))
    for body in damaged:
        overwrite(repo.store, key, body)
        with pytest.raises(IntegrityError) as caught:
            found[key]()
        assert key in caught.value.message
