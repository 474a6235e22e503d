"""Which chunks a checkpoint needs of packs that are given up, and how they go into new ones. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from everstep.format.box import Box
from everstep.format.entries import Entry, Tensor
from everstep.format.index import Chunk, Index
from everstep.format.packs import PackEntry, entry_room, header_room, pack_entry

__all__ = ["Move", "NewPack", "Spot", "dealt", "header_entries", "moves", "relocated"]

_HEADER_BYTES: Final = 16 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A chunk, where it lies, and the box of a tensor whose bytes from ``start`` on it is."""

    digest: str
    length: int
    source: str
    offset: int
    rank: int
    tensor: Tensor
    box: Box
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """Where a chunk lies now."""

    key: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPack:
    """A pack to be written: the rank whose index needs its first chunk, ``room`` bytes for the header, then the chunks.

    ``places`` are the chunks' offsets in the pack, ``size`` its bytes.
    """

    rank: int
    room: int
    size: int
    moves: tuple[Move, ...]
    places: tuple[int, ...]


def moves(index: Index, entries: Mapping[str, Entry], packs: Collection[str]) -> Iterator[Move]:
    """The chunks that an index needs of these packs, in its order. ``entries`` are the manifest's, by path."""
    given_up = [key in packs for key in index.packs]
    if not any(given_up):
        return
    for shard in index.shards:
        start = 0
        for chunk in shard.chunks:
            if given_up[chunk.pack]:
                tensor = entries[shard.path]
                assert isinstance(tensor, Tensor)
                yield Move(
                    digest=chunk.digest,
                    length=chunk.length,
                    source=index.packs[chunk.pack],
                    offset=chunk.offset,
                    rank=index.rank,
                    tensor=tensor,
                    box=Box(shard.offsets, shard.sizes),
                    start=start,
                )
            start += chunk.length


def dealt(chunks: Iterable[Move], *, pack_bytes: int) -> Iterator[NewPack]:
    """The chunks in order, packed until a pack has ``pack_bytes`` or the next one would not fit."""
    kept: list[Move] = []
    names: set[tuple[str, Box, int]] = set()
    header = held = 0
    for move in chunks:
        room = entry_room(move.tensor.path, move.tensor.dtype, move.tensor.shape, move.box)
        name = (move.tensor.path, move.box, move.start)
        if kept and (held + move.length > pack_bytes or header + room > _HEADER_BYTES or name in names):
            yield _pack(kept, header)
            kept, names, header, held = [], set(), 0, 0
        kept.append(move)
        names.add(name)
        header += room
        held += move.length
    if kept:
        yield _pack(kept, header)


def _pack(kept: Iterable[Move], header: int) -> NewPack:
    chunks = tuple(kept)
    room = at = header_room(header)
    places: list[int] = []
    for move in chunks:
        places.append(at)
        at += move.length
    return NewPack(rank=chunks[0].rank, room=room, size=at, moves=chunks, places=tuple(places))


def header_entries(pack: NewPack) -> Iterator[PackEntry]:
    """An entry for each stretch of a box whose chunks follow one another."""
    first = 0
    for number, move in enumerate(pack.moves):
        after = pack.moves[number + 1] if number + 1 < len(pack.moves) else None
        end = move.start + move.length
        begun = pack.moves[first]
        if after is not None and (after.tensor.path, after.box, after.start) == (
            begun.tensor.path,
            begun.box,
            end,
        ):
            continue
        tensor = begun.tensor
        yield pack_entry(tensor.path, tensor.dtype, tensor.shape, begun.box, start=begun.start, end=end)
        first = number + 1


def relocated(index: Index, packs: Collection[str], spots: Mapping[str, Spot]) -> Index:
    """The index with the chunks of these packs where ``spots`` say, by digest; all else as it is."""
    keys: dict[str, int] = {}

    def placed(chunk: Chunk) -> Chunk:
        key, offset = index.packs[chunk.pack], chunk.offset
        if key in packs:
            spot = spots[chunk.digest]
            key, offset = spot.key, spot.offset
        return Chunk(chunk.digest, keys.setdefault(key, len(keys)), offset, chunk.length)

    shards = tuple(
        replace(shard, chunks=tuple(placed(chunk) for chunk in shard.chunks)) for shard in index.shards
    )
    return replace(index, packs=tuple(keys), shards=shards)
