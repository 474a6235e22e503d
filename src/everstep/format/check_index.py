"""The bounds of an index and of a manifest."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final

from everstep.format.check_entries import check_entries
from everstep.format.check_records import check_parent
from everstep.format.dtypes import ITEM_BYTES
from everstep.format.entries import Entry, Tensor
from everstep.format.faults import Faults
from everstep.format.index import Chunk, Index, Shard
from everstep.format.limits import MAX_CHUNK_BYTES, MAX_INDEX_BYTES, MAX_RANKS, MAX_TENSOR_BYTES
from everstep.format.manifest import Manifest

__all__ = ["check_index", "check_manifest", "check_packs", "check_shards"]

_PACK: Final = re.compile(
    r"packs/[0-9a-f]{2}/s[0-9]{16}-a[0-9]{8}-[0-9a-f]{32}/[0-9]{1,10}-[0-9]{1,10}\.safetensors"
)
_MOST_BYTES: Final = 2**63 - 1


def check_index(index: Index, what: str = "index") -> None:
    """Every field within its bounds and in agreement with the others. Raises `InvalidManifest`.

    What lies outside cannot be seen here: that the index is the one asked for (run, save, rank), that
    the packs are there and long enough, and of a compact index the tensors that it does not list: `check_shards`.
    """
    faults = Faults(what)
    faults.run("run", index.run)
    faults.save("save", index.save)
    faults.count("world", index.world, MAX_RANKS, 1)
    faults.count("rank", index.rank, index.world - 1)
    faults.digest("plan", index.plan)
    check_packs(index.packs, faults)
    by_path: Mapping[str, Entry] = check_entries(index.entries, faults, own=index.compact, world=index.world)
    if index.compact:
        faults.count("bytes", index.bytes, _MOST_BYTES)
    else:
        _check_shards(index, by_path, faults)
    faults.count("stored_bytes", index.stored_bytes, _MOST_BYTES)
    _check_chunks(index, faults)


def check_shards(index: Index, entries: Mapping[str, Entry], what: str = "index") -> None:
    """The shards of an index against the tensors of the manifest, by path: of these are they boxes.

    Raises `InvalidManifest`.
    """
    _check_shards(index, entries, Faults(what))


def _check_shards(index: Index, by_path: Mapping[str, Entry], faults: Faults) -> None:
    total = 0
    elements: dict[str, int] = {}
    boxes: set[tuple[str, tuple[int, ...], tuple[int, ...]]] = set()
    for n, shard in enumerate(index.shards):
        total += _check_shard(shard, by_path.get(shard.path), n, faults)
        before = len(boxes)
        boxes.add((shard.path, shard.offsets, shard.sizes))
        if len(boxes) == before:
            raise faults.fail(f"shards[{n}]", f"the same box of {shard.path!r:.200} twice")
        elements[shard.path] = elements.get(shard.path, 0) + math.prod(shard.sizes)
    for path, held in elements.items():
        tensor = by_path[path]
        if isinstance(tensor, Tensor) and held > math.prod(tensor.shape):
            raise faults.fail("shards", f"the boxes of {path!r:.200} overlap")
    if index.bytes != total:
        raise faults.fail("bytes", f"{index.bytes}, but the shards have {total}")


def check_manifest(manifest: Manifest, what: str = "manifest") -> None:
    """Every field within its bounds and in agreement with the others. Raises `InvalidManifest`."""
    faults = Faults(what)
    faults.run("run", manifest.run)
    faults.save("save", manifest.save)
    faults.count("world", manifest.world, MAX_RANKS, 1)
    faults.time("created", manifest.created)
    if len(manifest.indexes) != manifest.world:
        raise faults.fail("indexes", f"{len(manifest.indexes)} for {manifest.world} ranks")
    for n, ref in enumerate(manifest.indexes):
        if ref.rank != n:
            raise faults.fail(f"indexes[{n}].rank", f"{ref.rank}; each rank stands once, in order")
        faults.digest(f"indexes[{n}].digest", ref.digest)
        faults.count(f"indexes[{n}].size", ref.size, MAX_INDEX_BYTES, 1)
    check_entries(manifest.entries, faults, world=manifest.world)
    check_packs(manifest.packs, faults)
    if list(manifest.packs) != sorted(manifest.packs):
        raise faults.fail("packs", "not sorted")
    faults.count("bytes", manifest.bytes, _MOST_BYTES)
    faults.count("stored_bytes", manifest.stored_bytes, _MOST_BYTES)
    check_parent("forked_from", manifest.forked_from, faults)


def check_packs(packs: Sequence[str], faults: Faults) -> None:
    """Each the key of a pack, and there once."""
    for n, key in enumerate(packs):
        if not _PACK.fullmatch(key):
            raise faults.fail(f"packs[{n}]", f"{key!r:.200} is not the key of a pack")
    if len(set(packs)) != len(packs):
        raise faults.fail("packs", "a key is there twice")


def _check_shard(shard: Shard, tensor: Entry | None, n: int, faults: Faults) -> int:
    if type(tensor) is not Tensor:
        raise faults.fail(f"shards[{n}].path", f"{shard.path!r:.200} is not a tensor in the list")
    shape, offsets, sizes = tensor.shape, shard.offsets, shard.sizes
    if len(offsets) != len(shape) or len(sizes) != len(shape):
        raise faults.fail(f"shards[{n}].offsets", f"not of the tensor's {len(shape)} dimensions")
    for start, size, extent in zip(offsets, sizes, shape, strict=True):
        if start < 0 or size < 0 or start + size > extent:
            raise faults.fail(f"shards[{n}].offsets", f"{offsets} + {sizes} is not inside {shape}")
    nbytes = math.prod(sizes) * ITEM_BYTES[tensor.dtype]
    held = sum([chunk.length for chunk in shard.chunks])
    if held != nbytes:
        raise faults.fail(f"shards[{n}].chunks", f"{held} bytes in all, the shard has {nbytes}")
    return nbytes


def _check_chunks(index: Index, faults: Faults) -> None:
    """Each chunk in bounds; two that share bytes of a pack are one and the same, or all is refused."""
    packs = len(index.packs)
    chunks: list[Chunk] = []
    for n, shard in enumerate(index.shards):
        for m, chunk in enumerate(shard.chunks):
            if not 0 <= chunk.pack < packs:
                raise faults.fail(f"shards[{n}].chunks[{m}].pack", f"{chunk.pack}, of {packs} packs")
            if not 0 <= chunk.offset <= MAX_TENSOR_BYTES:
                raise faults.fail(f"shards[{n}].chunks[{m}].offset", f"{chunk.offset} is out of range")
            if not 0 < chunk.length <= MAX_CHUNK_BYTES:
                raise faults.fail(
                    f"shards[{n}].chunks[{m}].length", f"{chunk.length} is not in 1 to {MAX_CHUNK_BYTES}"
                )
        chunks.extend(shard.chunks)
    for digest in {chunk.digest for chunk in chunks}:
        faults.digest("shards.chunks.digest", digest)
    pack = end = -1
    last: Chunk | None = None
    for chunk in sorted(chunks, key=_place):
        if chunk == last:
            continue
        if chunk.pack == pack and chunk.offset < end:
            raise faults.fail(
                "shards.chunks", f"two chunks overlap at byte {chunk.offset} of {index.packs[pack]}"
            )
        pack, end, last = chunk.pack, chunk.offset + chunk.length, chunk


def _place(chunk: Chunk) -> tuple[int, int, int, str]:
    return (chunk.pack, chunk.offset, chunk.length, chunk.digest)
