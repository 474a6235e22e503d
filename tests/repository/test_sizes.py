"""How many bytes a checkpoint of many ranks takes beside its packs. Counted, not timed."""

from __future__ import annotations

from msgspec.structs import replace

from everstep.format.digests import digest_of
from everstep.format.entries import Container, Tensor, Value
from everstep.format.ids import parse_save
from everstep.format.index import Chunk, Index, Meta, Shard, compacted
from everstep.format.layouts import make_layout, parts
from everstep.format.outline import outline
from everstep.format.records import PlanRecord
from everstep.format.wire import to_bytes
from everstep.repository.covering import adds_up
from everstep.repository.keys import pack_key
from everstep.repository.manifests import make_manifest

RANKS, TENSORS, PACKS = 2048, 1000, 20
SAVE = "s0000000000100000-a00000007-" + "ab" * 16
SHAPE = (RANKS, 64)
LAYOUT = make_layout(shape=(RANKS,), ranks=range(RANKS), placements=("shard:0",))
PLAN = digest_of(b"plan")
NAMES = [f"model/model.layers.{n // 9}.block.{n % 9}.weight" for n in range(TENSORS)]
SHARED = (
    Container(path="", type="dict", keys=["model", "rng", "step"]),
    Container(path="model", type="module", keys=[name.removeprefix("model/") for name in NAMES]),
    *(Tensor(path=name, dtype="bfloat16", shape=SHAPE, framework="torch", layout=LAYOUT) for name in NAMES),
)


def index(rank):
    """What one of the ranks writes."""
    entries = (
        *SHARED,
        Container(path="rng", type="per_rank", keys=[rank]),
        Value(path=f"rng/{rank}", value="0123456789" * 10),
        Value(path="step", value=100_000),
    )
    (part,) = parts(LAYOUT, SHAPE, rank)
    nbytes = part.box.elements * 2
    shards = tuple(
        Shard(
            path=name,
            offsets=part.box.offsets,
            sizes=part.box.sizes,
            chunks=(Chunk(PLAN, n % PACKS, 4096 + n * nbytes, nbytes),),
        )
        for n, name in enumerate(NAMES)
    )
    return Index(
        format=1,
        run="a-large-training",
        save=SAVE,
        rank=rank,
        world=RANKS,
        plan=PLAN,
        packs=tuple(pack_key(parse_save(SAVE), rank, n) for n in range(PACKS)),
        entries=entries,
        shards=shards,
        meta=Meta(metrics={"loss": 2.5}),
        bytes=nbytes * TENSORS,
        stored_bytes=nbytes * TENSORS,
    )


def test_2048_ranks_with_1000_sharded_tensors():
    """A rank's index is less than half without what rank 0 has; its outline is small; so is the manifest of all."""
    first, second = index(0), compacted(index(1))
    full, compact = len(to_bytes(index(1))), len(to_bytes(second))
    assert compact < full / 2
    told = outline(second, digest=PLAN, size=compact, entries={entry.path: entry for entry in SHARED})
    assert len(to_bytes(told)) < 4_096

    def of(rank):
        """The outline of another rank, without its thousand shards."""
        (part,) = parts(LAYOUT, SHAPE, rank)
        shards = tuple(
            replace(shard, offsets=part.box.offsets, sizes=part.box.sizes) for shard in second.shards
        )
        key, other = "rng/1", f"rng/{rank}"
        entries = tuple(
            replace(entry, path=other) if entry.path == key else replace(entry, keys=[rank])
            for entry in second.entries
        )
        packs = tuple(pack_key(parse_save(SAVE), rank, n) for n in range(PACKS))
        made = replace(second, rank=rank, entries=entries, packs=packs, shards=shards if rank < 3 else ())
        return outline(made, digest=PLAN, size=compact, entries={entry.path: entry for entry in SHARED})

    outlines = [outline(first, digest=PLAN, size=full), *(of(rank) for rank in range(1, RANKS))]
    plan = PlanRecord(format=1, run=first.run, save=SAVE, world=RANKS, created=1.5)
    manifest = make_manifest(plan, outlines)
    assert not adds_up(manifest.entries, outlines)  # all but three ranks told of no shards here
    assert len(manifest.packs) == RANKS * PACKS
    assert len(to_bytes(manifest)) < 5_000_000
