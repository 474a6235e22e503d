"""What one rank wrote in one save."""

from __future__ import annotations

from typing import Any

import msgspec

from everstep.format.entries import Entry
from everstep.format.own import own_entries

__all__ = ["Chunk", "Index", "Meta", "Shard", "compacted"]


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """A run of bytes and its digest: ``length`` bytes at ``offset`` of the object ``packs[pack]``."""

    digest: str
    pack: int
    offset: int
    length: int


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of one box of one tensor, row-major, as the chunks in order.

    All chunks but the last have `CHUNK_BYTES`. A shard without elements has no chunks.
    """

    path: str
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    chunks: tuple[Chunk, ...]


class Meta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a rank says about the save as a whole; rank 0's is the checkpoint's.

    ``metrics`` and ``config`` are encoded values (`values`). ``architecture`` is the architecture record:
    how to build the model, its parameter table, the code's and the packages' versions. ``reason`` is why it was
    saved (`Summary`); ``cadence`` an encoded value: the interval in force and what was decided since the save before.
    """

    metrics: dict[str, Any] = {}
    config: Any = None
    architecture: dict[str, Any] | None = None
    not_finite: tuple[str, ...] = ()
    reason: str = ""
    cadence: Any = None


class Index(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one rank wrote: the entries it has, where their bytes are, and what it stored.

    ``plan`` is the digest of the global plan, equal on all ranks. ``packs`` are full keys; those of older
    saves are there because chunks were found in a pinned base. ``bytes`` is the logical size of this
    rank's shards, ``stored_bytes`` what it uploaded in packs for this save.

    A ``compact`` index lists only the rank's own entries (`own.own_entries`), and of ``meta`` what is its own;
    all else is in rank 0's index. Its shards may be of any tensor of the manifest.
    """

    format: int
    run: str
    save: str
    rank: int
    world: int
    plan: str
    packs: tuple[str, ...]
    entries: tuple[Entry, ...]
    shards: tuple[Shard, ...]
    meta: Meta
    bytes: int
    stored_bytes: int
    compact: bool = False


def compacted(index: Index) -> Index:
    """The index with what is this rank's own alone. Its plan must be rank 0's."""
    return msgspec.structs.replace(
        index,
        entries=own_entries(index.entries),
        meta=Meta(not_finite=index.meta.not_finite),
        compact=True,
    )
