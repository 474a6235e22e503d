"""One checkpoint opened for reading by leaf, without a training state to put it into."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from everstep.events import Listener, silent
from everstep.format.box import Box
from everstep.format.dtypes import ITEM_BYTES
from everstep.format.entries import Entry, Tensor
from everstep.format.index import Index, Shard
from everstep.format.manifest import Manifest
from everstep.plan.load import plan_load
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.readable import check_readable
from everstep.repository.reading import read_indexes, read_manifest
from everstep.repository.repository import Repository
from everstep.state.flat import Wanted
from everstep.transfer.download import download

__all__ = ["Contents", "Part", "slabs"]

_BUDGET_BYTES = 256 * 2**20
_WORKERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A box of a tensor, and the memory its bytes go to: row-major, as long as the box's bytes."""

    path: str
    box: Box
    into: memoryview


@dataclass(frozen=True, slots=True)
class _Memory:
    """A `Target` that is plain memory."""

    memory: memoryview

    def view(self) -> memoryview:
        return self.memory

    def copy_from(self, filled: memoryview) -> None:
        self.memory[:] = filled


class Contents:
    """A checkpoint's entries and, when asked, the bytes of its tensors, each chunk verified.

    Raises what reading raises: `CheckpointPruned`, `CorruptObject`, `CorruptChunk`, `MissingObject`,
    `InvalidManifest`.
    """

    def __init__(
        self,
        repository: Repository,
        checkpoint: Checkpoint,
        *,
        workers: int = _WORKERS,
        budget_bytes: int = _BUDGET_BYTES,
        listener: Listener = silent,
    ) -> None:
        self.repository = repository
        self.checkpoint = checkpoint
        self.manifest: Manifest = read_manifest(repository, checkpoint)
        self.entries: Mapping[str, Entry] = {entry.path: entry for entry in self.manifest.entries}
        self._workers = workers
        self._budget_bytes = budget_bytes
        self._listener = listener

    @cached_property
    def indexes(self) -> tuple[Index, ...]:
        """What each rank wrote, read at the first use."""
        return read_indexes(self.repository, self.checkpoint, manifest=self.manifest)

    @cached_property
    def _shards(self) -> dict[str, list[Shard]]:
        shards: dict[str, list[Shard]] = {}
        for index in self.indexes:
            for shard in index.shards:
                shards.setdefault(shard.path, []).append(shard)
        return shards

    def tensor(self, path: str) -> Tensor:
        """The tensor at a path; KeyError where there is none."""
        entry = self.entries[path]
        if not isinstance(entry, Tensor):
            raise KeyError(path)
        return entry

    def same_bytes(self, path: str, other: Contents) -> bool:
        """Whether the digests alone prove that both hold the same bytes at a path. False proves nothing."""
        return self._digests(path) == other._digests(path)

    def _digests(self, path: str) -> set[tuple[object, ...]]:
        return {
            (shard.offsets, shard.sizes, tuple((chunk.digest, chunk.length) for chunk in shard.chunks))
            for shard in self._shards.get(path, ())
        }

    def check_readable(self, paths: Iterable[str]) -> None:
        """Raise `Archived`, before anything is read, if a pack with bytes of these tensors lies in an archive tier."""
        wanted = set(paths)
        check_readable(
            self.repository,
            self.checkpoint,
            (
                index.packs[chunk.pack]
                for index in self.indexes
                for shard in index.shards
                if shard.path in wanted
                for chunk in shard.chunks
            ),
        )

    def read(self, boxes: Sequence[tuple[str, Box]]) -> list[memoryview]:
        """The bytes of each box, row-major, in fresh memory."""
        parts = [
            Part(path=path, box=box, into=memoryview(bytearray(self._nbytes(path, box))))
            for path, box in boxes
        ]
        self.read_into(parts)
        return [part.into for part in parts]

    def read_into(self, parts: Sequence[Part]) -> None:
        """Fill each part's memory."""
        self.fetch(
            Wanted(
                path=part.path,
                dtype=self.tensor(part.path).dtype,
                box=part.box,
                nbytes=len(part.into),
                target=_Memory(part.into),
            )
            for part in parts
            if len(part.into)
        )

    def fetch(self, boxes: Iterable[Wanted]) -> None:
        """Fill the targets of wanted boxes."""
        wanted = tuple(boxes)
        download(
            self.repository.store,
            plan_load(wanted, self.indexes),
            wanted,
            run=self.checkpoint.run,
            step=self.checkpoint.step,
            budget_bytes=self._budget_bytes,
            workers=self._workers,
            listener=self._listener,
        )

    def _nbytes(self, path: str, box: Box) -> int:
        return box.elements * ITEM_BYTES[self.tensor(path).dtype]


def slabs(shape: tuple[int, ...], item_bytes: int, most: int) -> Iterator[Box]:
    """The tensor cut into boxes of at most ``most`` bytes that are contiguous in row-major order, in order."""
    yield from _cut((), shape, item_bytes, most)


def _cut(before: tuple[int, ...], rest: tuple[int, ...], item_bytes: int, most: int) -> Iterator[Box]:
    """Boxes of the tensor whose first dimensions are held at ``before``."""
    ones = (1,) * len(before)
    size = math.prod(rest) * item_bytes
    if size <= most or not rest:
        yield Box(before + (0,) * len(rest), ones + rest)
        return
    rows = most // (size // rest[0])
    if rows:
        for start in range(0, rest[0], rows):
            height = min(rows, rest[0] - start)
            yield Box((*before, start) + (0,) * (len(rest) - 1), (*ones, height, *rest[1:]))
        return
    for at in range(rest[0]):
        yield from _cut((*before, at), rest[1:], item_bytes, most)
