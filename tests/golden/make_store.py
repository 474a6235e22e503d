"""Make a frozen store: ``python -m tests.golden.make_store v2``. Only for a new version; never to mend a test."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec

import everstep as es
from everstep.format.digests import digest_of
from everstep.format.ids import parse_save
from everstep.format.manifest import Manifest
from everstep.format.records import CommitRecord
from everstep.format.wire import from_bytes, to_bytes
from everstep.repository.catalogue import newest
from everstep.repository.fork import fork
from everstep.repository.keys import commit_key, index_key, manifest_key
from everstep.repository.opening import open_repository
from everstep.repository.reading import read_indexes, read_manifest
from everstep.repository.tags import set_tag
from everstep.store.local import LocalStore
from tests.golden.states import state_at

HERE = Path(__file__).parent


def make(folder):
    """A run with two checkpoints, a tag and a fork."""
    with es.Checkpointer(str(folder), "first", config={"rate": 0.1}, keep="last 3") as ckpt:
        ckpt.save(1, state_at(1), metrics={"loss": 0.5}).wait()
        ckpt.save(2, state_at(2), metrics={"loss": float("nan")}).wait()
    repo = open_repository(LocalStore(folder), create=False)
    set_tag(repo, "Best", newest(repo, "first"))
    fork(repo, newest(repo, "first"), "second")
    return repo


def sealed(text):
    """A record's text with the ``check`` that belongs to it."""
    return text[:-1] + ',"check":"' + digest_of(text.encode()) + '"}'


def other_manifest(repo, found, text):
    """The keys and texts that put another manifest in the place of a checkpoint's, digests and all."""
    digest = digest_of(text.encode())
    key = commit_key(found.run, found.save)
    record = from_bytes(repo.store.get(key, 2**20), CommitRecord)
    changed = msgspec.structs.replace(record, manifest=digest, manifest_size=len(text.encode()))
    return {manifest_key(found.run, found.save, digest): text, key: to_bytes(changed).decode()}


def broken(repo):
    """What is done to a copy of the store, by name, and the code of the error that reading must end in."""
    found = newest(repo, "first")
    manifest = read_manifest(repo, found)
    commit = commit_key(found.run, found.save)
    ref = manifest.indexes[0]
    described = manifest_key(found.run, found.save, found.manifest)
    index = index_key(found.run, found.save, ref.rank, ref.digest)
    own = next(key for key in manifest.packs if parse_save(key.split("/")[2]) == found.save)
    base = next(key for key in manifest.packs if key != own)
    (described_by,) = read_indexes(repo, found)
    chunk = next(
        chunk
        for shard in described_by.shards
        for chunk in shard.chunks
        if described_by.packs[chunk.pack] == own
    )
    text = repo.store.get(described, 2**20).decode()
    climbing = text.replace('"path":"step"', '"path":"../x"').replace('"step","values"', '"..","values"')
    huge = text.replace('"shape":[4,6]', '"shape":[4294967296,4294967296]')
    twice = text[:-1] + ',"run":"first"}'
    store = repo.store.get("everstep.json", 2**20).decode()
    newer = sealed(store[: store.index(',"check"')].replace('"format":1', '"format":2') + "}")
    assert from_bytes(text.encode(), Manifest) == manifest
    assert len({text, climbing, huge, twice}) == 4
    return {
        "a store of another major version": ({"write": {"everstep.json": newer}}, "E-UNSUPPORTED-FORMAT"),
        "a bit of the store's record": ({"flip": ["everstep.json", 40]}, "E-CORRUPT-OBJECT"),
        "a bit of the commit record": ({"flip": [commit, 50]}, "E-CORRUPT-OBJECT"),
        "half a commit record": ({"cut": [commit, 200]}, "E-CORRUPT-OBJECT"),
        "a bit of the manifest": ({"flip": [described, 300]}, "E-CORRUPT-OBJECT"),
        "no manifest": ({"remove": [described]}, "E-MISSING-OBJECT"),
        "a bit of the index": ({"flip": [index, 1000]}, "E-CORRUPT-OBJECT"),
        "no index": ({"remove": [index]}, "E-MISSING-OBJECT"),
        "a bit of a chunk": ({"flip": [own, chunk.offset]}, "E-CORRUPT-CHUNK"),
        "half a pack": ({"cut": [own, chunk.offset]}, "E-CORRUPT-CHUNK"),
        "no pack": ({"remove": [own]}, "E-MISSING-OBJECT"),
        "no pack of the base": ({"remove": [base]}, "E-MISSING-OBJECT"),
        "a path that climbs": ({"write": other_manifest(repo, found, climbing)}, "E-INVALID-MANIFEST"),
        "a shape that overflows": ({"write": other_manifest(repo, found, huge)}, "E-INVALID-MANIFEST"),
        "a key twice": ({"write": other_manifest(repo, found, twice)}, "E-INVALID-MANIFEST"),
    }


if __name__ == "__main__":
    version = sys.argv[1]
    made = make(HERE / f"store-{version}")
    cases = {name: {**changes, "code": code} for name, (changes, code) in broken(made).items()}
    (HERE / f"broken-{version}.json").write_text(json.dumps(cases, indent=1) + "\n")
