"""What a manifest needs of one rank's index: what the rank tells the one that commits, instead of the index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from everstep.format.digests import digest_of
from everstep.format.entries import Entry
from everstep.format.index import Index, Meta, Shard
from everstep.format.manifest import IndexRef
from everstep.format.own import own_roots
from everstep.format.replicas import Replicas
from everstep.format.tally import Tally, tally

__all__ = ["Claim", "Outline", "content", "outline"]


class Claim(msgspec.Struct, frozen=True, array_like=True):
    """A box of a leaf below a ``stage``, and a digest of its bytes: that of the chunks' digests and lengths."""

    path: str
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    content: str


class Outline(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One rank's index in short.

    ``digest`` and ``size`` are those of the index's bytes. ``entries`` are the index's: of a compact one the
    rank's own. ``meta`` is what the manifest takes: all of rank 0, and the leaves that are not finite.

    ``held`` is the tally of the boxes of all leaves that are not below a ``stage``: those of all ranks add up to
    that of the manifest's tensors when each element is there once. ``claims`` are the boxes below a ``stage``.
    ``replicas`` are there when replicas are to be compared.
    """

    format: int
    run: str
    save: str
    rank: int
    world: int
    digest: str
    size: int
    plan: str
    packs: tuple[str, ...]
    entries: tuple[Entry, ...]
    meta: Meta
    bytes: int
    stored_bytes: int
    held: Tally
    claims: tuple[Claim, ...] = ()
    replicas: tuple[Replicas, ...] = ()
    compact: bool = False

    @property
    def ref(self) -> IndexRef:
        """The index, as the manifest refers to it."""
        return IndexRef(rank=self.rank, digest=self.digest, size=self.size)


def outline(
    index: Index,
    *,
    digest: str,
    size: int,
    entries: Mapping[str, Entry] | None = None,
    replicas: Sequence[Replicas] = (),
) -> Outline:
    """The outline of an index whose bytes have this digest and size.

    ``entries`` are rank 0's by path: a compact index needs them. Its shards are of tensors in them or in its
    own list (`check_shards`).
    """
    known = {**(entries or {}), **{entry.path: entry for entry in index.entries}}
    stages = tuple(
        f"{path}/" if path else "" for path, kind in own_roots(index.entries).items() if kind == "stage"
    )
    apart: list[Shard] = []
    together: list[Shard] = []
    for shard in index.shards:
        (apart if stages and shard.path.startswith(stages) else together).append(shard)
    meta = index.meta if index.rank == 0 else Meta(not_finite=index.meta.not_finite)
    return Outline(
        format=index.format,
        run=index.run,
        save=index.save,
        rank=index.rank,
        world=index.world,
        digest=digest,
        size=size,
        plan=index.plan,
        packs=index.packs,
        entries=index.entries,
        meta=meta,
        bytes=index.bytes,
        stored_bytes=index.stored_bytes,
        held=tally(together, known),
        claims=tuple(Claim(shard.path, shard.offsets, shard.sizes, content(shard)) for shard in apart),
        replicas=tuple(replicas),
        compact=index.compact,
    )


def content(shard: Shard) -> str:
    """A digest of the shard's bytes: equal for equal bytes cut into equal chunks."""
    if len(shard.chunks) == 1:
        return shard.chunks[0].digest
    return digest_of("".join(f"{chunk.digest}{chunk.length:x}\n" for chunk in shard.chunks).encode())
