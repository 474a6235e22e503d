"""Ranges of packs into memory: short answers tried again, every chunk verified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from blake3 import blake3

from everstep.errors import CorruptChunk, MissingObject, ObjectNotFound, ShortRead
from everstep.format.digests import digest_of
from everstep.plan.requests import ChunkRead
from everstep.store.protocol import Store

__all__ = ["Fetch"]

_TRIES = 3
_FUSED = 4 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """Reads for one checkpoint, whose ``run`` and ``step`` errors name; ``leaves`` are paths by pack key."""

    store: Store
    run: str
    step: int
    leaves: Mapping[str, Sequence[str]]
    fused: bool
    """Whether small requests cost next to nothing, so that bytes are hashed while the cache has them."""

    def chunk(self, key: str, read: ChunkRead, into: memoryview) -> None:
        """Fill ``into`` with one chunk and verify it. Raises `CorruptChunk`, `MissingObject`, `ShortRead`."""
        if not self.fused:
            self.range(key, read.chunk.offset, into, [read])
            self.verify(key, read, into)
            return
        hasher = blake3()
        for start in range(0, into.nbytes, _FUSED):
            part = into[start : start + _FUSED]
            self.range(key, read.chunk.offset + start, part, [read])
            hasher.update(part)
        if hasher.hexdigest() != read.chunk.digest:
            self._again(key, read, into)

    def range(self, key: str, start: int, into: memoryview, reads: Sequence[ChunkRead]) -> None:
        """Fill ``into`` from ``start`` of the object on, for these chunks. Nothing is verified."""
        for left in range(_TRIES - 1, -1, -1):
            try:
                self.store.get_range(key, start, into)
            except ObjectNotFound as error:
                raise self._missing(key) from error
            except ShortRead as error:
                if left == 0:
                    raise self._cut(key, reads) or error from error
            else:
                return

    def verify(self, key: str, read: ChunkRead, body: memoryview) -> None:
        """Check a chunk's bytes; wrong ones are read once more, in case they were damaged on the way."""
        if digest_of(body) != read.chunk.digest:
            self._again(key, read, body)

    def _again(self, key: str, read: ChunkRead, body: memoryview) -> None:
        self.range(key, read.chunk.offset, body, [read])
        if digest_of(body) != read.chunk.digest:
            raise self._corrupt(key, read, "its bytes are not those that were written")

    def _corrupt(self, key: str, read: ChunkRead, what: str) -> CorruptChunk:
        offset, length = read.chunk.offset, read.chunk.length
        return CorruptChunk(
            f"{read.path}: the chunk at bytes {offset} to {offset + length} of {key} is damaged: {what} "
            f"(run {self.run}, step {self.step}, rank {read.rank})",
            hint="an older checkpoint may be whole: `everstep verify` lists what is damaged",
            run=self.run,
            step=self.step,
            rank=read.rank,
            key=key,
            offset=offset,
            length=length,
            path=read.path,
        )

    def _cut(self, key: str, reads: Sequence[ChunkRead]) -> CorruptChunk | None:
        """The error for an object that ends too early; None when it is as long as it should be."""
        sizes = [listed.size for listed in self.store.list(key) if listed.key == key]
        for read in reads:
            if sizes and read.chunk.offset + read.chunk.length > sizes[0]:
                return self._corrupt(key, read, f"the object ends at byte {sizes[0]}")
        return None

    def _missing(self, key: str) -> MissingObject:
        paths = list(self.leaves[key])
        named = ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
        return MissingObject(
            f"{key} is gone: it holds bytes of {named} (run {self.run}, step {self.step})",
            hint="an older checkpoint may be whole: `everstep verify` lists what is damaged",
            run=self.run,
            step=self.step,
            key=key,
            paths=paths,
        )
