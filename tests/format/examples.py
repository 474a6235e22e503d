"""One of each object of the format, the same at every run."""

from __future__ import annotations

import math

from everstep.format.box import Box
from everstep.format.digests import digest_of
from everstep.format.entries import Alias, Container, Layout, Tensor, Value
from everstep.format.index import Chunk, Index, Meta, Shard
from everstep.format.manifest import IndexRef, Manifest
from everstep.format.packs import PAGE, pack_entry, write_header
from everstep.format.records import (
    AnswerRecord,
    AttemptRecord,
    CommitRecord,
    HeirRecord,
    Parent,
    PlanRecord,
    ReaderRecord,
    RequestRecord,
    RunRecord,
    StoreRecord,
    Summary,
    SweepRecord,
    TagRecord,
    TombRecord,
    VerifiedRecord,
)
from everstep.format.values import encode

SAVE = "s0000000000000300-a00000002-" + "ab" * 16
BASE = "s0000000000000200-a00000001-" + "cd" * 16
REWRITTEN = "s0000000000000200-a00000001-" + "ef" * 16
OWN_PACK, BASE_PACK = (
    f"packs/{digest_of(f'{save}/0/0'.encode())[:2]}/{save}/0-0.safetensors" for save in (SAVE, BASE)
)


def digest(text):
    """Some digest."""
    return digest_of(text.encode())


ENTRIES = (
    Container(path="", type="dict", keys=["model", "step", "history", "loader"]),
    Container(
        path="model", type="dict", keys=["weight", "tied", "view", "table", "empty"], name="torch.nn.Module"
    ),
    Tensor(path="model/weight", dtype="float32", shape=(4, 8), framework="torch"),
    Alias(path="model/tied", of="model/weight"),
    Alias(path="model/view", of="model/weight", shape=(8, 4), strides=(1, 8), offset=0),
    Tensor(
        path="model/table",
        dtype="bfloat16",
        shape=(6, 2),
        framework="torch",
        layout=Layout(shape=(1,), names=("dp",), placements=("shard:0",)),
        extra={"requires_grad": True},
    ),
    Tensor(path="model/empty", dtype="int64", shape=(0, 3), framework="numpy"),
    Value(path="step", value=300),
    Container(path="history", type="list", length=2),
    Value(path="history/0", value=encode(math.nan)),
    Value(path="history/1", value=encode({"lr": (0.1, 2**70), 3: b"x"})),
    Container(path="loader", type="per_rank", keys=[0]),
    Value(path="loader/0", value="odd/~\u00e9"),
)

META = Meta(
    metrics={"loss": encode(0.25), "worst": encode(math.inf)},
    config=encode({"lr": 0.1}),
    architecture={"factory": "models:small", "parameters": 38},
    not_finite=("history/0",),
)

INDEX = Index(
    format=1,
    run="gpt-small",
    save=SAVE,
    rank=0,
    world=1,
    plan=digest("plan"),
    packs=(OWN_PACK, BASE_PACK),
    entries=ENTRIES,
    shards=(
        Shard(
            path="model/weight",
            offsets=(0, 0),
            sizes=(4, 8),
            chunks=(Chunk(digest("a"), 0, 4096, 64), Chunk(digest("b"), 1, 8192, 64)),
        ),
        Shard(path="model/table", offsets=(0, 0), sizes=(3, 2), chunks=(Chunk(digest("c"), 0, 4160, 12),)),
        Shard(path="model/table", offsets=(3, 0), sizes=(3, 2), chunks=(Chunk(digest("c"), 0, 4160, 12),)),
        Shard(path="model/empty", offsets=(0, 0), sizes=(0, 3), chunks=()),
    ),
    meta=META,
    bytes=152,
    stored_bytes=4172,
)

MANIFEST = Manifest(
    format=1,
    run="gpt-small",
    save=SAVE,
    world=1,
    created=1763720000.25,
    indexes=(IndexRef(0, digest("index"), 4000),),
    entries=ENTRIES,
    packs=tuple(sorted((OWN_PACK, BASE_PACK))),
    meta=META,
    bytes=152,
    stored_bytes=4172,
    forked_from=Parent(run="gpt-tiny", save=BASE),
)

SHARDED = (
    Container(path="", type="dict", keys=["model", "head", "loader", "step"]),
    Container(path="model", type="module", keys=["weight", "scale", "wide"], name="torch.nn.Module"),
    Tensor(
        path="model/weight",
        dtype="float32",
        shape=(8, 3),
        framework="torch",
        layout=Layout(shape=(2, 2), placements=("shard:0", "shard:1"), names=("dp", "tp"), strides=(1, 2)),
    ),
    Tensor(path="model/scale", dtype="float32", shape=(2,), framework="torch"),
    Tensor(
        path="model/wide",
        dtype="float32",
        shape=(8, 2),
        framework="torch",
        layout=Layout(shape=(4,), placements=("strided:0:2",)),
    ),
)
STAGED = (
    Container(path="head", type="stage", keys=["norm"]),
    Tensor(
        path="head/norm",
        dtype="float32",
        shape=(3,),
        framework="torch",
        layout=Layout(shape=(2,), placements=("replicate",), ranks=(3, 1)),
    ),
)

COMPACT = Index(
    format=1,
    run="gpt-small",
    save=SAVE,
    rank=1,
    world=4,
    plan=digest("plan"),
    packs=(f"packs/{digest_of(f'{SAVE}/1/0'.encode())[:2]}/{SAVE}/1-0.safetensors",),
    entries=(
        *STAGED,
        Container(path="loader", type="per_rank", keys=[1]),
        Value(path="loader/1", value=[1, 5]),
    ),
    shards=(
        Shard(path="model/weight", offsets=(4, 0), sizes=(4, 2), chunks=(Chunk(digest("w1"), 0, 4096, 32),)),
        Shard(path="model/wide", offsets=(1, 0), sizes=(1, 2), chunks=(Chunk(digest("x1"), 0, 4128, 8),)),
        Shard(path="model/wide", offsets=(5, 0), sizes=(1, 2), chunks=(Chunk(digest("x2"), 0, 4136, 8),)),
        Shard(path="head/norm", offsets=(0,), sizes=(3,), chunks=(Chunk(digest("n"), 0, 4144, 12),)),
    ),
    meta=Meta(not_finite=("model/weight",)),
    bytes=60,
    stored_bytes=4156,
    compact=True,
)

OF_FOUR = Manifest(
    format=1,
    run="gpt-small",
    save=SAVE,
    world=4,
    created=1763720000.25,
    indexes=tuple(IndexRef(rank, digest(f"index {rank}"), 2000 - 600 * bool(rank)) for rank in range(4)),
    entries=(
        *SHARDED,
        Container(path="head", type="stage", keys=["embedding", "norm"]),
        Tensor(
            path="head/embedding",
            dtype="float32",
            shape=(5, 3),
            framework="torch",
            layout=Layout(shape=(2,), placements=("replicate",), strides=(2,)),
        ),
        STAGED[1],
        Container(path="loader", type="per_rank", keys=[0, 1, 2, 3]),
        *(Value(path=f"loader/{rank}", value=[rank, 5]) for rank in range(4)),
        Value(path="step", value=300),
    ),
    packs=tuple(
        sorted(
            f"packs/{digest_of(f'{SAVE}/{rank}/0'.encode())[:2]}/{SAVE}/{rank}-0.safetensors"
            for rank in range(4)
        )
    ),
    meta=Meta(metrics={"loss": 0.25}, not_finite=("model/weight",)),
    bytes=240,
    stored_bytes=16624,
)

SUMMARY = Summary(created=1763720000.25, bytes=152, stored_bytes=4172, world=1, metrics={"loss": 0.25})

OBJECTS = {
    "store": StoreRecord(format=1, id="7" * 32, digest="blake3-256", created=1763710000.0, version="0.1.0"),
    "run": RunRecord(format=1, run="gpt-small", created=1763710001.5, version="0.1.0", keep="last 3"),
    "run-forked": RunRecord(
        format=1,
        run="gpt-small-2",
        created=1763710001.5,
        version="0.1.0",
        parent=Parent(run="gpt-small", save=SAVE),
    ),
    "attempt": AttemptRecord(
        format=1,
        run="gpt-small",
        attempt=2,
        id="5" * 32,
        created=1763710002.0,
        owner="host-1:4711",
        world=1,
        resumed_from=BASE,
    ),
    "plan": PlanRecord(
        format=1,
        run="gpt-small",
        save=SAVE,
        world=1,
        created=1763720000.25,
        bases=(Parent(run="gpt-small", save=BASE),),
    ),
    "commit": CommitRecord(
        format=1,
        run="gpt-small",
        save=SAVE,
        state="committed",
        write="9" * 32,
        decided=1763720003.0,
        manifest=digest("manifest"),
        manifest_size=3500,
        summary=SUMMARY,
    ),
    "aborted": CommitRecord(
        format=1,
        run="gpt-small",
        save=SAVE,
        state="aborted",
        write="8" * 32,
        decided=1763720003.0,
        why="attempt 3 found it unfinished",
    ),
    "tag": TagRecord(format=1, tag="best", run="gpt-small", save=SAVE, created=1763720004.0),
    "attempt-with-policies": AttemptRecord(
        format=1,
        run="gpt-small",
        attempt=3,
        id="4" * 32,
        created=1763730000.0,
        owner="host-2:4711",
        world=8,
        resumed_from=SAVE,
        keep="last 3, best 1 by loss",
        every="auto",
    ),
    "plan-replacing": PlanRecord(
        format=1,
        run="gpt-small",
        save=REWRITTEN,
        world=1,
        created=1763700000.0,
        bases=(Parent(run="gpt-small", save=BASE),),
        replaces=BASE,
    ),
    "commit-replacing": CommitRecord(
        format=1,
        run="gpt-small",
        save=REWRITTEN,
        state="committed",
        write="6" * 32,
        decided=1763740000.0,
        manifest=digest("rewritten"),
        manifest_size=3400,
        summary=Summary(
            created=1763700000.0, bytes=152, stored_bytes=4172, world=1, reason="due", replaces=BASE
        ),
    ),
    "tomb": TombRecord(format=1, run="gpt-small", save=SAVE, created=1763740001.0, why="last 3"),
    "tomb-replaced": TombRecord(
        format=1, run="gpt-small", save=BASE, created=1763740001.0, why="repacked", replaced_by=REWRITTEN
    ),
    "sweep": SweepRecord(format=1, run="gpt-small", save=BASE, created=1763740002.0, undeleted=False),
    "sweep-undeleted": SweepRecord(
        format=1, run="gpt-small", save=SAVE, created=1763740002.0, undeleted=True
    ),
    "reader": ReaderRecord(
        format=1,
        reader="3" * 32,
        run="gpt-small",
        save=SAVE,
        owner="host-3:99",
        created=1763720005.0,
    ),
    "verified": VerifiedRecord(format=1, run="gpt-small", save=SAVE, by="restore", created=1763720006.0),
    "heir": HeirRecord(format=1, run="gpt-small", heir="gpt-small-2", created=1763720007.0),
    "request": RequestRecord(
        format=1, run="gpt-small", request="2" * 32, owner="host-4:7", created=1763720008.0
    ),
    "answer": AnswerRecord(format=1, run="gpt-small", request="2" * 32, save=SAVE),
    "index": INDEX,
    "manifest": MANIFEST,
    "index-compact": COMPACT,
    "manifest-sharded": OF_FOUR,
}

PACK_ENTRIES = (
    pack_entry("model/weight", "float32", (4, 8), Box.whole((4, 8)), start=0, end=64),
    pack_entry("model/table", "bfloat16", (6, 2), Box((0, 0), (3, 2))),
    pack_entry("step", "int64", (), Box.whole(())),
)


def pack_header():
    """The header of a pack with the entries above."""
    header = bytearray(PAGE)
    write_header(PACK_ENTRIES, memoryview(header))
    return bytes(header)
