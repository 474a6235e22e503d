"""``python -m bench.planning``: what planning costs one rank of many, by simulation; no network, no bytes of tensors.

1,000 sharded tensors of a transformer over 64 to 2,048 ranks, in three layouts. Measured are CPU seconds of the code
that a save and a restore run, on one rank: planning and describing a save (``save``), making the manifest from
what all ranks told (``commit``), finding and planning a restore of this rank's share, manifest and indexes
parsed (``load``). Beside it DCP's own planner at the sizes it can bear: local plan, global plan from all
ranks' plans with the metadata pickled, and local load plan from the pickled metadata.
"""

import argparse
import gc
import pickle
import time
from dataclasses import dataclass
from types import SimpleNamespace

from everstep.format.box import Box
from everstep.format.digests import digest_of
from everstep.format.entries import Container, Tensor
from everstep.format.ids import SaveId
from everstep.format.index import Chunk, Index, Meta, Shard, compacted
from everstep.format.layouts import make_layout, parts, sharers
from everstep.format.limits import CHUNK_BYTES, FORMAT_MAJOR
from everstep.format.manifest import Manifest
from everstep.format.outline import Outline, outline
from everstep.format.records import PlanRecord
from everstep.format.wire import from_bytes, to_bytes
from everstep.plan import locate, plan_load, plan_save
from everstep.repository.agreement import check_agreement, check_layouts
from everstep.repository.covering import adds_up, check_claims
from everstep.repository.keys import pack_key
from everstep.repository.manifests import make_manifest
from everstep.transfer.layout import pack_bytes_for

SAVE = SaveId(step=1000, attempt=1, nonce="0" * 32)
SHAPES = [(4096, 4096), (4096, 1024), (4096, 4096), (1024, 4096), (14336, 4096), (4096, 14336), (4096,)]
ITEM = 4


@dataclass(frozen=True, slots=True)
class Piece:
    path: str
    box: Box
    nbytes: int
    replicas: tuple


def meshes(world):
    """The layouts by name: mesh, placements of matrices and of vectors."""
    return {
        "FSDP": ((world,), ("shard:0",), ("shard:0",)),
        "HSDP": ((world // 32, 32), ("replicate", "shard:0"), ("replicate", "shard:0")),
        "FSDP+TP": ((world // 8, 8), ("shard:0", "shard:1"), ("shard:0", "replicate")),
    }


def entries_of(tensors, mesh, matrix, vector, world):
    """A model's entries."""
    layouts = [make_layout(shape=mesh, ranks=range(world), placements=placed) for placed in (matrix, vector)]
    names = [f"layers.{n // 7}.part{n % 7}.weight" for n in range(tensors)]
    found = [
        Container(path="", type="dict", keys=["model"]),
        Container(path="model", type="module", keys=names, name="Model"),
    ]
    for n, name in enumerate(names):
        shape = SHAPES[n % len(SHAPES)]
        layout = layouts[len(shape) == 1]
        found.append(
            Tensor(path=f"model/{name}", dtype="float32", shape=shape, framework="torch", layout=layout)
        )
    return tuple(found)


def pieces_of(entries, rank):
    """What the rank holds; the walk over the live state is not planning."""
    return [
        Piece(entry.path, part.box, ITEM * part.box.elements, sharers(entry.layout, rank, part.coordinate))
        for entry in entries
        if isinstance(entry, Tensor)
        for part in parts(entry.layout, entry.shape, rank)
    ]


def index_of(entries, pieces, plan, rank, world):
    """The index a rank would write, with digests of nothing."""
    most, pack, at, shards = pack_bytes_for(plan.nbytes), 0, 2**20, []
    for number in plan.writes:
        piece, chunks = pieces[number], []
        for start in range(0, piece.nbytes, CHUNK_BYTES):
            length = min(CHUNK_BYTES, piece.nbytes - start)
            if at + length > most:
                pack, at = pack + 1, 2**20
            digest = f"{rank:08x}{number:08x}{start:048x}"
            chunks.append(Chunk(digest, pack, at, length))
            at += length
        shards.append(
            Shard(path=piece.path, offsets=piece.box.offsets, sizes=piece.box.sizes, chunks=tuple(chunks))
        )
    return Index(
        format=FORMAT_MAJOR, run="run", save=str(SAVE), rank=rank, world=world, plan=plan.digest,
        packs=tuple(pack_key(SAVE, rank, n) for n in range(pack + 1)) if shards else (),
        entries=entries, shards=tuple(shards), meta=Meta(), bytes=plan.nbytes, stored_bytes=plan.nbytes,
    )  # fmt: skip


def cpu(work, rounds=3):
    """The least CPU seconds of some rounds, and what came of it."""
    times = []
    for _ in range(rounds):
        gc.collect()
        start = time.process_time()
        found = work()
        times.append(time.process_time() - start)
    return min(times), found


def ours(world, tensors, mesh, matrix, vector):
    """What one rank spends, and the sizes of what is stored."""
    entries = entries_of(tensors, mesh, matrix, vector, world)
    by_path = {entry.path: entry for entry in entries}

    def described(rank, pieces):
        plan = plan_save(pieces, rank=rank, world=world, entries=entries)
        index = index_of(entries, pieces, plan, rank, world)
        if rank:
            index = compacted(index)
        body = to_bytes(index)
        return body, to_bytes(outline(index, digest=digest_of(body), size=len(body), entries=by_path))

    bodies, words = {}, []
    for rank in range(world):
        body, word = described(rank, pieces_of(entries, rank))
        bodies[rank] = body
        words.append(word)
    rank = world // 2 + 1
    pieces = pieces_of(entries, rank)
    save_s, _ = cpu(lambda: described(rank, pieces))
    record = PlanRecord(format=FORMAT_MAJOR, run="run", save=str(SAVE), world=world, created=0.0, bases=())

    def committed():
        outlines = [from_bytes(word, Outline) for word in words]
        check_agreement(record, outlines)
        manifest = make_manifest(record, outlines)
        check_layouts(manifest)
        check_claims(record, manifest.entries, outlines)
        assert adds_up(manifest.entries, outlines)
        return to_bytes(manifest)

    commit_s, text = cpu(committed)
    wanted = [SimpleNamespace(path=p.path, box=p.box, nbytes=p.nbytes) for p in pieces]

    def planned():
        manifest = from_bytes(text, Manifest)
        ranks = locate(wanted, manifest.entries, manifest.world)
        indexes = [from_bytes(bodies[rank], Index) for rank in ranks]
        return ranks, plan_load(wanted, indexes)

    load_s, (ranks, reads) = cpu(planned)
    return {
        "save": save_s,
        "commit": commit_s,
        "load": load_s,
        "manifest": len(text),
        "index": len(bodies[rank]),
        "word": max(map(len, words[1:])),
        "indexes read": len(ranks),
        "requests": len(reads),
    }


def dcp(world, tensors, mesh, matrix, vector):
    """The same state through DCP's default planner, all ranks' plans made in this process."""
    import torch
    from torch.distributed.checkpoint.default_planner import (
        create_default_global_save_plan,
        create_default_local_load_plan,
    )
    from torch.distributed.checkpoint.metadata import (
        ChunkStorageMetadata,
        MetadataIndex,
        TensorProperties,
        TensorStorageMetadata,
    )
    from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType
    from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

    entries = entries_of(tensors, mesh, matrix, vector, world)
    properties = TensorProperties(dtype=torch.float32)

    def local(rank):
        """What `create_default_local_save_plan` makes of DTensors with these boxes."""
        items = []
        for piece in pieces_of(entries, rank):
            offsets, sizes = torch.Size(piece.box.offsets), torch.Size(piece.box.sizes)
            shape = torch.Size(by_path[piece.path].shape)
            items.append(
                WriteItem(
                    index=MetadataIndex(piece.path, offsets),
                    type=WriteItemType.SHARD,
                    tensor_data=TensorWriteData(
                        chunk=ChunkStorageMetadata(offsets=offsets, sizes=sizes),
                        properties=properties,
                        size=shape,
                    ),
                )
            )
        return SavePlan(items)

    by_path = {entry.path: entry for entry in entries}
    save_s, _ = cpu(lambda: pickle.dumps(local(world // 2 + 1)), 2)
    told = [pickle.dumps(local(rank)) for rank in range(world)]

    def committed():
        plans = [pickle.loads(one) for one in told]
        _, metadata = create_default_global_save_plan(plans)
        return pickle.dumps(metadata)

    commit_s, text = cpu(committed, 1)
    mine = pieces_of(entries, world // 2 + 1)

    def planned():
        metadata = pickle.loads(text)
        items = []
        for piece in mine:
            md = metadata.state_dict_metadata[piece.path]
            assert isinstance(md, TensorStorageMetadata)
            chunk = ChunkStorageMetadata(
                offsets=torch.Size(piece.box.offsets), sizes=torch.Size(piece.box.sizes)
            )
            items += create_read_items_for_chunk_list(piece.path, md, [chunk])
        return items

    assert callable(create_default_local_load_plan)
    load_s, _ = cpu(planned, 1)
    return {"save": save_s, "commit": commit_s, "load": load_s, "manifest": len(text)}


def main():
    parser = argparse.ArgumentParser(prog="python -m bench.planning", description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, nargs="+", default=[64, 256, 2048])
    parser.add_argument("--tensors", type=int, default=1000)
    parser.add_argument("--dcp-up-to", type=int, default=256, help="the largest world that DCP plans for")
    chosen = parser.parse_args()
    print(f"{chosen.tensors} tensors; CPU seconds on one rank, sizes in MB; 'x' is DCP's share over ours\n")
    print(
        f"{'layout':9}{'ranks':>6}{'':>10}{'save s':>9}{'commit s':>10}{'load s':>9}{'manifest':>10}"
        f"{'index':>8}{'word':>8}{'indexes':>9}{'requests':>10}"
    )
    worst = 0.0
    for world in chosen.worlds:
        for name, how in meshes(world).items():
            found = ours(world, chosen.tensors, *how)
            worst = max(worst, found["save"], found["commit"], found["load"])
            print(
                f"{name:9}{world:6}{'everstep':>10}{found['save']:9.3f}{found['commit']:10.3f}{found['load']:9.3f}"
                f"{found['manifest'] / 1e6:10.3f}{found['index'] / 1e6:8.3f}{found['word'] / 1e6:8.4f}"
                f"{found['indexes read']:9}{found['requests']:10}",
                flush=True,
            )
            if world <= chosen.dcp_up_to:
                theirs = dcp(world, chosen.tensors, *how)
                print(
                    f"{'':15}{'DCP':>10}{theirs['save']:9.3f}{theirs['commit']:10.3f}{theirs['load']:9.3f}"
                    f"{theirs['manifest'] / 1e6:10.3f}"
                )
                ratios = {key: theirs[key] / found[key] for key in theirs}
                print(
                    f"{'':15}{'x':>10}{ratios['save']:9.1f}{ratios['commit']:10.1f}{ratios['load']:9.1f}"
                    f"{ratios['manifest']:10.1f}",
                    flush=True,
                )
    print(f"\nthe most that any rank spends at once: {worst:.2f} CPU-s")


if __name__ == "__main__":
    main()
