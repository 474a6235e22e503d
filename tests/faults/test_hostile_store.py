"""A store that somebody made to do harm: every digest is right, and a name, a size or an address is not."""

import json
from collections.abc import Callable

import msgspec
import numpy as np
import pytest

import everstep as es
from everstep.cli.entry import run
from everstep.errors import EverstepError, IntegrityError, InvalidManifest, UnsuitableStore
from everstep.format.digests import digest_of
from everstep.format.ids import SaveId
from everstep.format.records import CommitRecord
from everstep.format.wire import from_bytes
from everstep.repository import keys as k
from everstep.store.count import Count
from everstep.store.local import LocalStore
from everstep.store.memory import MemoryStore
from everstep.store.protocol import Store

Json = dict[str, object]


def saved(store: Store) -> SaveId:
    """One checkpoint."""
    with es.Checkpointer(store, "run", listener=lambda _event: None) as ckpt:
        return ckpt.save(1, {"w": np.arange(1000.0), "n": 1}).wait().save


def nothing(_object: Json) -> None:
    """Leaves it as it is."""


def forge(
    store: Store,
    save: SaveId,
    *,
    index: Callable[[Json], None] = nothing,
    manifest: Callable[[Json], None] = nothing,
    record: Json | None = None,
) -> None:
    """Change the index, the manifest and the commit record, with digests and sizes that fit."""
    names = [listed.key for listed in store.list(k.save_prefix("run", save))]
    old_index = next(name for name in names if "/rank-" in name)
    old_manifest = next(name for name in names if "/manifest." in name)
    made = json.loads(store.get(old_index, 10**6))
    index(made)
    text = json.dumps(made, separators=(",", ":")).encode()
    whole = json.loads(store.get(old_manifest, 10**6))
    whole["indexes"] = [[0, digest_of(text), len(text)]]
    whole["packs"] = made["packs"]
    manifest(whole)
    body = json.dumps(whole, separators=(",", ":")).encode()
    commit = k.commit_key("run", save)
    standing = from_bytes(store.get(commit, 10**6), CommitRecord, what=commit)
    fields = {"manifest": digest_of(body), "manifest_size": len(body), **(record or {})}
    for name in (old_index, old_manifest, commit):
        store.delete(name)
    store.create(k.index_key("run", save, 0, digest_of(text)), text)
    store.create(k.manifest_key("run", save, digest_of(body)), body)
    store.create(commit, sealed(msgspec.structs.replace(standing, **fields)))


def sealed(record: CommitRecord) -> bytes:
    """The record's bytes as a writer without our checks would make them."""
    text = msgspec.json.encode(record)
    return text[:-1] + b',"check":"' + digest_of(text).encode() + b'"}'


def test_an_honest_forgery_reads():
    """What the tests below change is all that makes the difference."""
    store = MemoryStore()
    forge(store, saved(store))
    assert es.load(store, "run")["n"] == 1


BAD_KEYS = [
    "../outside",
    "packs/../../outside",
    "/etc/passwd",
    "C:/outside",
    "packs\\..\\outside",
    "packs/a\0b",
    "packs//a",
    "runs/run/other.json",
]


@pytest.mark.parametrize("key", BAD_KEYS)
def test_a_pack_named_outside_its_place(key, tmp_path, capsys):
    """InvalidManifest naming the field; nothing of that name is asked for, by no way of reading (fault 27)."""
    (tmp_path / "outside").write_bytes(b"x" * 10_000)
    inner = LocalStore(tmp_path / "store")
    save = saved(inner)
    forge(inner, save, index=lambda made: made.update(packs=[key]))
    store = Count(inner)
    for read in (
        lambda: es.load(store, "run"),
        lambda: es.load(store, "run", step=1),
        lambda: es.Checkpointer(store, "run").restore({"w": np.zeros(1000), "n": 0}),
    ):
        with pytest.raises(InvalidManifest, match="packs"):
            read()
    assert key not in [asked for _verb, asked in store.log]
    for words in (["verify"], ["export", "run", "--out", str(tmp_path / "o")], ["fork", "run@1", "child"]):
        assert run([*words, "--store", str(tmp_path / "store")]) in {6, 10}
    assert "Traceback" not in "".join(capsys.readouterr())
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("key", ["../../outside", "runs/run/../../../outside"])
def test_a_leaf_path_is_no_file_path(key, tmp_path):
    """A leaf may be called anything; nothing is written by that name (fault 27)."""
    store = str(tmp_path / "store")
    with es.Checkpointer(store, "run") as ckpt:
        ckpt.save(1, {key: np.arange(3), "\0": 1})
    assert es.load(store, "run")[key].tolist() == [0, 1, 2]
    out = tmp_path / "deep" / "out.safetensors"
    assert run(["export", "run", "--out", str(out), "--store", store]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "store"]


@pytest.mark.parametrize("size", [2**40, 2**62, -1])
def test_a_manifest_that_says_it_is_a_terabyte(size):
    """Refused at the size it declares, which is named; not a byte is allocated or read for it (fault 28)."""
    inner = MemoryStore()
    forge(inner, saved(inner), record={"manifest_size": size})
    store = Count(inner)
    with pytest.raises(IntegrityError, match=r"manifest_size|manifest\.size|manifest"):
        es.load(store, "run")
    assert not [key for _verb, key in store.log if "/manifest." in key]


@pytest.mark.parametrize(
    "change",
    [
        {"length": 2**60},
        {"offset": 2**63},
        {"offset": -1},
        {"length": 0},
        {"pack": 7},
        {"digest": "0" * 63},
    ],
    ids=str,
)
def test_a_chunk_that_cannot_be(change):
    """Refused by field before memory is asked for (fault 28)."""
    inner = MemoryStore()

    def index(made: Json) -> None:
        chunk = next(shard for shard in made["shards"] if shard["chunks"])["chunks"][0]
        for field, value in change.items():
            chunk[("digest", "pack", "offset", "length").index(field)] = value

    forge(inner, saved(inner), index=index)
    store = Count(inner)
    with pytest.raises(InvalidManifest, match="chunks"):
        es.load(store, "run")
    assert not [key for _verb, key in store.log if key.startswith("packs/")]


@pytest.mark.parametrize("shape", [[2**62, 2**62], [-1], [2**40], [1] * 100])
def test_a_shape_that_cannot_be(shape):
    """Refused by field before memory is asked for (fault 28)."""
    store = MemoryStore()

    def change(made: Json) -> None:
        next(entry for entry in made["entries"] if "shape" in entry)["shape"] = shape

    forge(store, saved(store), index=change, manifest=change)
    with pytest.raises(EverstepError) as caught:
        es.load(store, "run")
    assert caught.value.exit_code == 6
    assert "shape" in str(caught.value) or "shard" in str(caught.value)


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "169.254.170.2", "[fd00:ec2::254]", "metadata.google.internal"]
)
@pytest.mark.parametrize(
    ("url", "variable"),
    [
        ("s3://b/x", "AWS_ENDPOINT_URL"),
        ("az://c/x", "AZURE_STORAGE_ENDPOINT"),
        ("gs://b/x", "STORAGE_EMULATOR_HOST"),
    ],
)
def test_an_endpoint_that_hands_out_credentials(url, variable, host, monkeypatch):
    """A Checkpointer on it is refused at once, the host named; nothing is sent there (fault 29)."""
    monkeypatch.setenv(variable, f"http://{host}/latest")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "team")
    monkeypatch.setenv("AZURE_STORAGE_KEY", "a2V5")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "team")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "key")
    with pytest.raises(UnsuitableStore) as caught:
        es.Checkpointer(url, "run")
    assert host.strip("[]") in str(caught.value)
