"""What a plan asks the transfer to do."""

from __future__ import annotations

import msgspec

from everstep.format.box import Box
from everstep.format.index import Chunk

__all__ = ["ChunkRead", "Read"]


class ChunkRead(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One chunk to fetch and verify, and the wanted boxes that take bytes of it.

    The chunk holds bytes ``[start, start + chunk.length)`` of the row-major bytes of ``shard_box`` of the
    tensor at ``path``; ``rank`` wrote it. ``wanted`` are positions in the list of wanted boxes.
    """

    path: str
    rank: int
    shard_box: Box
    start: int
    chunk: Chunk
    wanted: tuple[int, ...]


class Read(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One ranged request: ``length`` bytes at ``offset`` of ``key``, and the chunks in it, by offset."""

    key: str
    offset: int
    length: int
    chunks: tuple[ChunkRead, ...]
