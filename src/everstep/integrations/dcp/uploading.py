"""A rank's pieces into packs of a save: copied, hashed and stored, a stretch of memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from everstep.events import Listener
from everstep.format.digests import Digest
from everstep.format.entries import Tensor
from everstep.format.index import Chunk, Shard
from everstep.integrations.dcp.session import Known
from everstep.plan.save import SavePlan
from everstep.repository.saves import Save
from everstep.state.flat import Flat, Piece
from everstep.store.protocol import Store
from everstep.transfer.layout import pack_bytes_for
from everstep.transfer.memory import Arena
from everstep.transfer.stage import stage
from everstep.transfer.upload import Uploaded, upload

__all__ = ["known_chunks", "upload_pieces"]

BATCH_BYTES: Final = 2**30
"""How many bytes are copied before they are stored: the memory that a rank needs beside its tensors."""


def upload_pieces(
    pieces: Sequence[Piece],
    tensors: Mapping[str, Tensor],
    *,
    store: Store,
    save: Save,
    rank: int,
    known: Known,
    arena: Arena,
    workers: int,
    listener: Listener,
    batch_bytes: int = BATCH_BYTES,
) -> Uploaded:
    """Store the pieces, but for chunks that are ``known``; those stored before in this save are known too.

    Raises what `upload` raises, and what a piece's source raises.
    """
    pack_bytes = pack_bytes_for(sum(piece.nbytes for piece in pieces))
    places: Known = dict(known)
    packs: dict[str, int] = {}
    shards: list[Shard] = []
    stored = number = 0
    for batch in _batches(pieces, batch_bytes):
        flat = Flat(entries=tuple(tensors.values()), pieces=tuple(batch), synchronize=lambda: None)
        plan = SavePlan(
            rank=rank,
            world=save.world,
            writes=tuple(range(len(batch))),
            nbytes=sum(piece.nbytes for piece in batch),
            digest=Digest(""),
        )
        staged = stage(flat, plan, arena, pack_bytes=pack_bytes)
        first, number = number, number + len(staged.packs)
        done = upload(
            staged,
            store=store,
            pack_key=partial(_pack_key, save, rank, first),
            known=places,
            workers=workers,
            listener=listener,
        )
        stored += done.stored_bytes
        for shard in done.shards:
            chunks = [_placed(chunk, done.packs, packs) for chunk in shard.chunks]
            shards.append(
                Shard(path=shard.path, offsets=shard.offsets, sizes=shard.sizes, chunks=tuple(chunks))
            )
        places |= _chunks(done.packs, done.shards)
    return Uploaded(packs=tuple(packs), shards=tuple(shards), stored_bytes=stored)


def _pack_key(save: Save, rank: int, first: int, number: int) -> str:
    return save.pack_key(rank, first + number)


def known_chunks(uploaded: Uploaded) -> Known:
    """Where each chunk lies, by digest."""
    return _chunks(uploaded.packs, uploaded.shards)


def _batches(pieces: Sequence[Piece], nbytes: int) -> Iterator[list[Piece]]:
    batch: list[Piece] = []
    size = 0
    for piece in pieces:
        if batch and size + piece.nbytes > nbytes:
            yield batch
            batch, size = [], 0
        batch.append(piece)
        size += piece.nbytes
    if batch:
        yield batch


def _placed(chunk: Chunk, keys: Sequence[str], packs: dict[str, int]) -> Chunk:
    at = packs.setdefault(keys[chunk.pack], len(packs))
    return Chunk(chunk.digest, at, chunk.offset, chunk.length)


def _chunks(packs: Sequence[str], shards: Sequence[Shard]) -> Known:
    return {
        Digest(chunk.digest): (packs[chunk.pack], chunk.offset, chunk.length)
        for shard in shards
        for chunk in shard.chunks
    }
