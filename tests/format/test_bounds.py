"""Every bound of the format, each by an object that breaks it alone."""

from __future__ import annotations

import msgspec
import pytest

from everstep.errors import InvalidManifest, UnsupportedFormat
from everstep.format.entries import Alias, Container, Layout, Tensor, Value
from everstep.format.index import Chunk, Shard
from everstep.format.limits import MAX_DEPTH, MAX_TENSOR_BYTES
from everstep.format.manifest import IndexRef
from everstep.format.records import Parent
from everstep.format.values import decode, encode
from everstep.format.wire import from_bytes, to_bytes
from tests.format.examples import BASE_PACK, ENTRIES, INDEX, MANIFEST, OBJECTS, OWN_PACK, SUMMARY, digest
from tests.format.test_wire import changed

ROOT = Container(path="", type="dict", keys=["x"])


def tensor(**fields):
    """The state of one tensor, some of its fields changed."""
    return (ROOT, Tensor(**{"path": "x", "dtype": "float32", "shape": (2, 3), "framework": "torch"} | fields))


def alias(**fields):
    """A tensor of six elements and a view of it."""
    root = Container(path="", type="dict", keys=["x", "y"])
    return (root, tensor()[1], Alias(**{"path": "y", "of": "x", "shape": (6,), "strides": (1,)} | fields))


def paths(*names):
    """Values at the top, by path."""
    keys = [name for name in names if "/" not in name]
    return (Container(path="", type="dict", keys=keys), *(Value(path=name, value=0) for name in names))


def nested(depth):
    """A container in a container in a container."""
    return tuple(Container(path="/".join("a" * n), type="x", keys=None) for n in range(depth + 1))


BAD_ENTRIES = {
    "a parent that comes later": ((ROOT, Value(path="y/z", value=0)), "entries[1].path"),
    "no root": ((Value(path="x", value=0),), "entries[0].path"),
    "a child of a value": (paths("x", "x/y"), "entries[2].path"),
    "a path twice": (paths("x", "x"), "entries[2].path"),
    "the root twice": ((ROOT, ROOT), "entries[1].path"),
    "an absolute path": (paths("/x"), "entries[1].path"),
    "a climbing path": (paths(".."), "entries[1].path"),
    "a NUL": (paths("x\0"), "entries[1].path"),
    "a bad escape": (paths("x~9"), "entries[1].path"),
    "a path too long": (paths("x" * 4097), "entries[1].path"),
    "a path too deep": (nested(129), "entries[129].path"),
    "a child too many": ((*paths("x"), Value(path="y", value=0)), "entries[0]"),
    "a child too few": ((ROOT,), "entries[0]"),
    "a list out of order": (
        (Container(path="", type="list", length=2), Value(path="1", value=0), Value(path="0", value=0)),
        "entries[1].path",
    ),
    "a negative length": ((Container(path="", type="x", length=-1),), "entries[0].length"),
    "an unknown type of element": (tensor(dtype="float7"), "entries[1].dtype"),
    "a negative dimension": (tensor(shape=(-1,)), "entries[1].shape"),
    "a shape that overflows": (tensor(shape=(2**32, 2**32)), "entries[1].shape"),
    "a shape that overflows beside a zero": (tensor(shape=(2**40, 0, 2**40)), "entries[1].shape"),
    "a dimension that overflows": (tensor(shape=(MAX_TENSOR_BYTES + 1,)), "entries[1].shape"),
    "too many dimensions": (tensor(shape=(1,) * 65), "entries[1].shape"),
    "an empty mesh dimension": (
        tensor(layout=Layout(shape=(0,), placements=("replicate",))),
        "entries[1].layout.mesh",
    ),
    "too large a mesh": (
        tensor(layout=Layout(shape=(10**6, 2), placements=("replicate", "replicate"))),
        "entries[1].layout.mesh",
    ),
    "a mesh of too many dimensions": (
        tensor(layout=Layout(shape=(1,) * 65, placements=("replicate",) * 65)),
        "entries[1].layout.mesh",
    ),
    "names that do not fit the mesh": (
        tensor(layout=Layout(shape=(2,), names=("a", "b"), placements=("replicate",))),
        "entries[1].layout.names",
    ),
    "placements that do not fit the mesh": (
        tensor(layout=Layout(shape=(2,), placements=())),
        "entries[1].layout.placements",
    ),
    "an unknown placement": (
        tensor(layout=Layout(shape=(2,), placements=("torn",))),
        "entries[1].layout.placements",
    ),
    "a placement outside the tensor": (
        tensor(layout=Layout(shape=(2,), placements=("shard:2",))),
        "entries[1].layout.placements",
    ),
    "an alias of nothing": (alias(of="z"), "entries[2].of"),
    "an alias of a container": (alias(of=""), "entries[2].of"),
    "an alias of itself": (alias(of="y"), "entries[2].of"),
    "a view before its tensor": (alias(offset=-1), "entries[2].offset"),
    "a view past its tensor": (alias(offset=1), "entries[2].offset"),
    "a view by a large stride": (alias(strides=(2,)), "entries[2].offset"),
    "a view by a negative stride": (alias(strides=(-1,), offset=5), "entries[2].strides"),
    "strides that do not fit": (alias(strides=()), "entries[2].strides"),
    "strides without a shape": (alias(shape=None), "entries[2].strides"),
    "a view that overflows": (alias(shape=(2**50,), strides=(0,)), "entries[2].shape"),
}


@pytest.mark.parametrize("name", BAD_ENTRIES)
def test_entries_out_of_bounds_are_refused(name):
    """In a manifest and in an index, by a reader and by a writer, with the place."""
    entries, field = BAD_ENTRIES[name]
    index = {"shards": (), "bytes": 0, "packs": ()}
    for struct, others in [(MANIFEST, {}), (INDEX, index)]:
        with pytest.raises(InvalidManifest) as caught:
            from_bytes(changed(struct, entries=entries, **others), type(struct))
        assert caught.value.fields["field"] == field
        with pytest.raises(InvalidManifest):
            to_bytes(msgspec.structs.replace(struct, entries=entries, **others))


@pytest.mark.parametrize(
    "entries",
    [
        paths("C:\\x", "layer:0", "a\\b", "\u00fc", "..."),
        nested(128),
        tensor(shape=()),
        tensor(shape=(0, 5)),
        alias(strides=(0,), offset=5),
        alias(shape=(3,), strides=(2,), offset=1),
        alias(shape=(0,), offset=6),
        alias(shape=(), strides=(), offset=5),
        alias(shape=None, strides=()),
    ],
    ids=range(9),
)
def test_entries_just_inside_the_bounds_are_read(entries):
    """The bounds refuse nothing that a training state can hold."""
    manifest = msgspec.structs.replace(MANIFEST, entries=entries)
    assert from_bytes(to_bytes(manifest), type(manifest)) == manifest


def shards(*chunks, path="model/weight", offsets=(0, 0), sizes=(4, 8)):
    """One shard of 128 bytes."""
    return {"shards": (Shard(path=path, offsets=offsets, sizes=sizes, chunks=chunks),), "bytes": 128}


def chunk(**fields):
    """One chunk of 128 bytes."""
    return Chunk(**{"digest": digest("a"), "pack": 0, "offset": 4096, "length": 128} | fields)


HALF = Shard(path="model/weight", offsets=(0, 0), sizes=(2, 8), chunks=(chunk(length=64),))
BAD_INDEXES = {
    "a run that climbs": ({"run": "../x"}, "run"),
    "a save that is none": ({"save": "s1"}, "save"),
    "a rank outside the world": ({"rank": 1}, "rank"),
    "a negative rank": ({"rank": -1}, "rank"),
    "no world": ({"world": 0}, "world"),
    "too large a world": ({"world": 10**6 + 1}, "world"),
    "a plan that is no digest": ({"plan": "x"}, "plan"),
    "an absolute pack": ({"packs": ("/" + OWN_PACK, BASE_PACK)}, "packs[0]"),
    "a climbing pack": ({"packs": ("../" + OWN_PACK, BASE_PACK)}, "packs[0]"),
    "a pack that climbs inside": ({"packs": (OWN_PACK.replace("/0-0", "/../0-0"), BASE_PACK)}, "packs[0]"),
    "a pack on a drive": ({"packs": ("C:" + OWN_PACK, BASE_PACK)}, "packs[0]"),
    "a pack by backslashes": ({"packs": (OWN_PACK.replace("/", "\\"), BASE_PACK)}, "packs[0]"),
    "a pack with a NUL": ({"packs": (OWN_PACK + "\0", BASE_PACK)}, "packs[0]"),
    "a pack with a line end": ({"packs": (OWN_PACK + "\n", BASE_PACK)}, "packs[0]"),
    "an object that is no pack": ({"packs": ("everstep.json", BASE_PACK)}, "packs[0]"),
    "a pack twice": ({"packs": (OWN_PACK, OWN_PACK)}, "packs"),
    "a shard of nothing": (shards(chunk(), path="nothing"), "shards[0].path"),
    "a shard of a value": (shards(chunk(), path="step"), "shards[0].path"),
    "a shard of a tied tensor": (shards(chunk(), path="model/tied"), "shards[0].path"),
    "a box of other dimensions": (shards(chunk(), offsets=(0,)), "shards[0].offsets"),
    "a box at a negative offset": (shards(chunk(), offsets=(-1, 0)), "shards[0].offsets"),
    "a box of a negative size": (shards(chunk(), sizes=(-4, -8)), "shards[0].offsets"),
    "a box past the tensor": (shards(chunk(), offsets=(1, 0)), "shards[0].offsets"),
    "too few bytes": (shards(chunk(length=127)), "shards[0].chunks"),
    "too many bytes": (shards(chunk(), chunk(offset=8192, length=1)), "shards[0].chunks"),
    "no bytes": (shards(), "shards[0].chunks"),
    "a box twice": ({"shards": (HALF, HALF), "bytes": 128}, "shards[1]"),
    "boxes that overlap": ({"shards": (*shards(chunk(offset=8192))["shards"], HALF), "bytes": 192}, "shards"),
    "another sum of bytes": ({"bytes": 151}, "bytes"),
    "negative stored bytes": ({"stored_bytes": -1}, "stored_bytes"),
    "a chunk in no pack": (shards(chunk(pack=2)), "shards[0].chunks[0].pack"),
    "a chunk in a negative pack": (shards(chunk(pack=-1)), "shards[0].chunks[0].pack"),
    "a chunk at a negative offset": (shards(chunk(offset=-1)), "shards[0].chunks[0].offset"),
    "a chunk far away": (shards(chunk(offset=2**62)), "shards[0].chunks[0].offset"),
    "an empty chunk": (shards(chunk(), chunk(length=0)), "shards[0].chunks[1].length"),
    "a chunk of negative length": (
        shards(chunk(length=129), chunk(offset=9000, length=-1)),
        "shards[0].chunks[1].length",
    ),
    "a chunk that is too large": (
        {
            "entries": tensor(dtype="uint8", shape=(2**26 + 1,)),
            "shards": (Shard(path="x", offsets=(0,), sizes=(2**26 + 1,), chunks=(chunk(length=2**26 + 1),)),),
            "bytes": 2**26 + 1,
        },
        "shards[0].chunks[0].length",
    ),
    "a digest that is none": (shards(chunk(digest="x")), "shards.chunks.digest"),
    "a digest in capitals": (shards(chunk(digest=digest("a").upper())), "shards.chunks.digest"),
    "chunks that overlap": (shards(chunk(length=65), chunk(offset=4160, length=63)), "shards.chunks"),
    "one place with two digests": (
        shards(chunk(length=64), chunk(length=64, digest=digest("b"))),
        "shards.chunks",
    ),
}


@pytest.mark.parametrize("name", BAD_INDEXES)
def test_an_index_out_of_bounds_is_refused(name):
    """By a reader and by a writer, with the place."""
    fields, field = BAD_INDEXES[name]
    with pytest.raises(InvalidManifest) as caught:
        from_bytes(changed(INDEX, **fields), type(INDEX), what="key")
    assert caught.value.fields["field"] == field
    assert caught.value.message.startswith("key: ")
    with pytest.raises(InvalidManifest):
        to_bytes(msgspec.structs.replace(INDEX, **fields))


BAD_MANIFESTS = {
    "a run that climbs": ({"run": ".."}, "run"),
    "a save that is none": ({"save": ""}, "save"),
    "no world": ({"world": 0, "indexes": ()}, "world"),
    "no index": ({"indexes": ()}, "indexes"),
    "an index of another rank": ({"indexes": (IndexRef(1, digest("a"), 1),)}, "indexes[0].rank"),
    "a rank twice": ({"world": 2, "indexes": (IndexRef(0, digest("a"), 1),) * 2}, "indexes[1].rank"),
    "an index without a digest": ({"indexes": (IndexRef(0, "", 1),)}, "indexes[0].digest"),
    "an index too large": ({"indexes": (IndexRef(0, digest("a"), 2**30),)}, "indexes[0].size"),
    "an empty index": ({"indexes": (IndexRef(0, digest("a"), 0),)}, "indexes[0].size"),
    "packs out of order": ({"packs": tuple(sorted((BASE_PACK, OWN_PACK), reverse=True))}, "packs"),
    "a pack that climbs": ({"packs": ("../x",)}, "packs[0]"),
    "a negative size": ({"bytes": -1}, "bytes"),
    "negative stored bytes": ({"stored_bytes": -1}, "stored_bytes"),
    "a time before time": ({"created": -1.0}, "created"),
    "a parent that climbs": ({"forked_from": Parent(run="..", save=MANIFEST.save)}, "forked_from.run"),
}


@pytest.mark.parametrize("name", BAD_MANIFESTS)
def test_a_manifest_out_of_bounds_is_refused(name):
    """By a reader and by a writer, with the place."""
    fields, field = BAD_MANIFESTS[name]
    with pytest.raises(InvalidManifest) as caught:
        from_bytes(changed(MANIFEST, **fields), type(MANIFEST))
    assert caught.value.fields["field"] == field
    with pytest.raises(InvalidManifest):
        to_bytes(msgspec.structs.replace(MANIFEST, **fields))


NO_PARENT = Parent(run="ok", save="../..")
BAD_RECORDS = {
    "a store without an id": ("store", {"id": ""}, "id"),
    "a store before time": ("store", {"created": -1.0}, "created"),
    "a run that climbs": ("run", {"run": "../x"}, "run"),
    "a run's parent": ("run", {"parent": NO_PARENT}, "parent.save"),
    "an attempt's number": ("attempt", {"attempt": -1}, "attempt"),
    "an attempt's world": ("attempt", {"world": 0}, "world"),
    "an attempt's origin": ("attempt", {"resumed_from": "x"}, "resumed_from"),
    "a plan's save": ("plan", {"save": "x"}, "save"),
    "a plan's base": ("plan", {"bases": (NO_PARENT,)}, "bases[0].save"),
    "a plan's origin": ("plan", {"forked_from": NO_PARENT}, "forked_from.save"),
    "a third state": ("commit", {"state": "maybe"}, "state"),
    "a commit without a writer": ("commit", {"write": ""}, "write"),
    "a commit without a manifest": ("commit", {"manifest": ""}, "manifest"),
    "a manifest of 1 GB": ("commit", {"manifest_size": 10**9}, "manifest_size"),
    "an empty manifest": ("commit", {"manifest_size": 0}, "manifest_size"),
    "a commit without a summary": ("commit", {"summary": None}, "summary"),
    "a negative size": ("commit", {"summary": msgspec.structs.replace(SUMMARY, bytes=-1)}, "summary.bytes"),
    "a summary's world": ("commit", {"summary": msgspec.structs.replace(SUMMARY, world=0)}, "summary.world"),
    "an abort with a manifest": ("aborted", {"manifest": digest("a")}, "manifest"),
    "a tag that climbs": ("tag", {"tag": "../x"}, "tag"),
    "a tag's save": ("tag", {"save": ""}, "save"),
}


@pytest.mark.parametrize("name", BAD_RECORDS)
def test_a_record_out_of_bounds_is_refused(name):
    """By a reader and by a writer, with the place, though its check is right."""
    record, fields, field = BAD_RECORDS[name]
    struct = OBJECTS[record]
    with pytest.raises(InvalidManifest) as caught:
        from_bytes(changed(struct, **fields), type(struct))
    assert caught.value.fields["field"] == field
    with pytest.raises(InvalidManifest):
        to_bytes(msgspec.structs.replace(struct, **fields))


def test_digests_of_another_kind_are_refused_with_a_hint():
    """A store whose digests this version cannot compute."""
    with pytest.raises(UnsupportedFormat, match="sha-512") as caught:
        from_bytes(changed(OBJECTS["store"], digest="sha-512"), type(OBJECTS["store"]))
    assert "upgrade" in caught.value.hint


def test_the_examples_are_in_bounds():
    """What the broken ones are made from is read."""
    assert from_bytes(changed(INDEX), type(INDEX)).entries == ENTRIES


def test_more_entries_than_allowed_are_refused(monkeypatch):
    """Their number is looked at before any of them."""
    monkeypatch.setattr("everstep.format.check_entries.MAX_ENTRIES", len(ENTRIES) - 1)
    for struct in (INDEX, MANIFEST):
        with pytest.raises(InvalidManifest) as caught:
            from_bytes(changed(struct), type(struct))
        assert caught.value.fields["field"] == "entries"


def test_the_deepest_value_goes_through():
    """What may be nested in a value, and in the state, also fits the bound on JSON."""
    value = {"deep": ()}
    for _ in range(MAX_DEPTH - 1):
        value = (value,) if isinstance(value, dict) else {"deep": value}
    entries = (*nested(MAX_DEPTH)[:-1], Value(path="/".join("a" * MAX_DEPTH), value=encode(value)))
    manifest = msgspec.structs.replace(MANIFEST, entries=entries)
    found = from_bytes(to_bytes(manifest), type(manifest))
    assert decode(found.entries[-1].value) == value
    with pytest.raises(TypeError, match="deep"):
        encode((((value,),),))
