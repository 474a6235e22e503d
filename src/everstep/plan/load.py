"""Which bytes a restore reads: the wanted boxes met with the boxes that ranks stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from everstep.errors import InvalidManifest, RestoreError
from everstep.format.box import Box
from everstep.format.index import Chunk, Index, Shard
from everstep.plan.boxes import first_inside
from everstep.plan.requests import ChunkRead, Read

__all__ = ["Loadable", "plan_load"]


class Loadable(Protocol):
    """A box that a restore needs."""

    @property
    def path(self) -> str:
        """The tensor."""
        ...

    @property
    def box(self) -> Box:
        """The elements."""
        ...

    @property
    def nbytes(self) -> int:
        """Their size."""
        ...


def plan_load(
    wanted: Sequence[Loadable],
    indexes: Sequence[Index],
    *,
    max_read: int = 16 * 2**20,
    max_gap: int = 64 * 2**10,
) -> tuple[Read, ...]:
    """The reads that bring every wanted byte, only chunks that hold one, neighbours in a pack joined.

    Stored and wanted boxes may be cut in any way. A read has at most ``max_read`` bytes, or one chunk; chunks of a
    pack at most ``max_gap`` bytes apart are read as one. Reads come in the order of the wanted
    boxes they serve first, so that boxes are completed early. Equal arguments give equal plans.
    Time is O(shards of the wanted paths + intersections + chunks read).

    Raises `RestoreError` naming the path when the indexes do not cover a wanted box, and
    `InvalidManifest` when they contradict themselves.
    """
    stored = _stored({box.path for box in wanted}, indexes)
    found: dict[tuple[int, int, int], list[int]] = {}
    for position, box in enumerate(wanted):
        if not box.nbytes:
            continue
        for which in _cover(box, stored.get(box.path, [])):
            index, shard = which
            for number in _chunks(indexes[index].shards[shard], box):
                found.setdefault((index, shard, number), []).append(position)
    return _joined(_chunk_reads(found, indexes), max_read, max_gap)


def _stored(paths: set[str], indexes: Sequence[Index]) -> dict[str, list[tuple[Box, int, int]]]:
    """By path: each stored box once, with the positions of its index and shard; of equal boxes the first."""
    stored: dict[str, dict[Box, tuple[int, int]]] = {}
    for i, index in enumerate(indexes):
        for s, shard in enumerate(index.shards):
            if shard.path in paths:
                stored.setdefault(shard.path, {}).setdefault(Box(shard.offsets, shard.sizes), (i, s))
    return {path: [(box, i, s) for box, (i, s) in boxes.items()] for path, boxes in stored.items()}


def _cover(wanted: Loadable, stored: Iterable[tuple[Box, int, int]]) -> list[tuple[int, int]]:
    """The shards that hold elements of a wanted box; raises unless they hold each exactly once."""
    parts: list[Box] = []
    shards: list[tuple[int, int]] = []
    for box, index, shard in stored:
        if len(box.sizes) != len(wanted.box.sizes):
            raise InvalidManifest(
                f"{wanted.path}: a shard has {len(box.sizes)} dimensions, the tensor {len(wanted.box.sizes)}",
                path=wanted.path,
            )
        part = box.intersect(wanted.box)
        if part is not None:
            parts.append(part)
            shards.append((index, shard))
    covered = sum(part.elements for part in parts)
    if _overlap(parts):
        raise InvalidManifest(f"{wanted.path}: shards overlap", path=wanted.path)
    if covered != wanted.box.elements:
        raise RestoreError(
            f"{wanted.path}: the checkpoint holds {covered} of the {wanted.box.elements} elements wanted",
            hint="an index is missing, or the tensor had another shape when it was saved",
            path=wanted.path,
        )
    return shards


def _overlap(parts: list[Box]) -> bool:
    """Whether two of the boxes share an element: swept along the dimension that tells most of them apart."""
    if len(parts) < 2 or not parts[0].sizes:
        return len(parts) > 1
    sweep = max(range(len(parts[0].sizes)), key=lambda d: len({part.offsets[d] for part in parts}))
    active: list[Box] = []
    for part in sorted(parts, key=lambda part: part.offsets[sweep]):
        start = part.offsets[sweep]
        active = [other for other in active if other.offsets[sweep] + other.sizes[sweep] > start]
        if any(part.intersect(other) for other in active):
            return True
        active.append(part)
    return False


def _chunks(shard: Shard, wanted: Loadable) -> Iterator[int]:
    """The numbers of the shard's chunks that hold a byte of the wanted box."""
    whole = Box(shard.offsets, shard.sizes)
    nbytes = sum(chunk.length for chunk in shard.chunks)
    item = wanted.nbytes // wanted.box.elements
    if nbytes != item * whole.elements or item * wanted.box.elements != wanted.nbytes:
        raise InvalidManifest(
            f"{shard.path}: {nbytes} bytes stored for {whole.elements} elements of {item} bytes",
            path=shard.path,
        )
    part = whole.intersect(wanted.box)
    assert part is not None
    part = part.relative_to(whole)
    if part.sizes == shard.sizes:
        yield from range(len(shard.chunks))
        return
    start = 0
    for number, chunk in enumerate(shard.chunks):
        end = start + chunk.length
        first = first_inside(shard.sizes, part, start // item)
        if first is None:
            return
        if first * item < end:
            yield number
        start = end


def _chunk_reads(
    found: dict[tuple[int, int, int], list[int]], indexes: Sequence[Index]
) -> Iterator[tuple[str, ChunkRead]]:
    starts: dict[tuple[int, int], list[int]] = {}
    for (i, s, number), positions in found.items():
        index, shard = indexes[i], indexes[i].shards[s]
        if (i, s) not in starts:
            starts[i, s] = _starts(shard.chunks)
        chunk = shard.chunks[number]
        if not 0 <= chunk.pack < len(index.packs):
            raise InvalidManifest(f"{shard.path}: pack {chunk.pack} of {len(index.packs)}", path=shard.path)
        yield (
            index.packs[chunk.pack],
            ChunkRead(
                path=shard.path,
                rank=index.rank,
                shard_box=Box(shard.offsets, shard.sizes),
                start=starts[i, s][number],
                chunk=chunk,
                wanted=tuple(positions),
            ),
        )


def _starts(chunks: Sequence[Chunk]) -> list[int]:
    starts = [0]
    for chunk in chunks:
        starts.append(starts[-1] + chunk.length)
    return starts


def _joined(chunks: Iterable[tuple[str, ChunkRead]], max_read: int, max_gap: int) -> tuple[Read, ...]:
    ordered = sorted(
        chunks, key=lambda found: (found[0], found[1].chunk.offset, found[1].path, found[1].start)
    )
    reads: list[Read] = []
    run: list[ChunkRead] = []
    key, start, end = "", 0, 0

    def close() -> None:
        if run:
            reads.append(Read(key=key, offset=start, length=end - start, chunks=tuple(run)))

    for pack, read in ordered:
        low, high = read.chunk.offset, read.chunk.offset + read.chunk.length
        joins = run and pack == key and low <= end + max_gap and max(high, end) - start <= max_read
        if not joins:
            close()
            run, key, start, end = [], pack, low, high
        run.append(read)
        end = max(end, high)
    close()
    reads.sort(key=lambda read: (min(chunk.wanted[0] for chunk in read.chunks), read.key, read.offset))
    return tuple(reads)
