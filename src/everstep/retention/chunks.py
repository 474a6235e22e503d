"""Which chunks of some packs the checkpoints need: read from their indexes, as far as these packs are named there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from everstep.errors import Archived, ObjectNotFound, ShortRead
from everstep.format.index import Index
from everstep.format.manifest import Manifest
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.headers import header_end
from everstep.repository.parallel import gather
from everstep.repository.reading import by_path, read_index, read_manifest
from everstep.repository.repository import Repository
from everstep.repository.spans import Place
from everstep.retention.holdings import Held

__all__ = ["data_bytes", "indexes_of", "live_bytes", "sparse", "used_chunks"]

_AHEAD = 8


def used_chunks(repo: Repository, held: Iterable[Held], packs: Collection[str]) -> dict[str, set[Place]]:
    """By pack the chunks that any of these checkpoints needs.

    Costs the manifest and all indexes of each checkpoint that needs one of the packs. Few indexes are in memory at
    once. Raises what reading them raises.
    """
    found: dict[str, set[Place]] = {key: set() for key in packs}
    for one in held:
        if one.packs.isdisjoint(found):
            continue
        for index in indexes_of(repo, one.checkpoint, read_manifest(repo, one.checkpoint)):
            _add(index, found)
    return found


def indexes_of(repo: Repository, checkpoint: Checkpoint, manifest: Manifest) -> Iterator[Index]:
    """The indexes of a checkpoint in the order of ranks; at most 8 are in memory."""
    entries = by_path(manifest.entries)
    for start in range(0, len(manifest.indexes), _AHEAD):
        refs = manifest.indexes[start : start + _AHEAD]
        yield from gather(lambda ref: read_index(repo, checkpoint, ref, entries), refs)


def _add(index: Index, found: Mapping[str, set[Place]]) -> None:
    rooms = [found.get(key) for key in index.packs]
    if not any(room is not None for room in rooms):
        return
    for shard in index.shards:
        for chunk in shard.chunks:
            room = rooms[chunk.pack]
            if room is not None:
                room.add(Place(chunk.offset, chunk.length, chunk.digest))


def live_bytes(used: Mapping[str, Collection[Place]]) -> dict[str, int]:
    """By pack the bytes of its chunks that are needed, each once."""
    return {key: sum(place.length for place in places) for key, places in used.items()}


def data_bytes(repo: Repository, sizes: Mapping[str, int], packs: Iterable[str]) -> dict[str, int]:
    """The bytes of these packs without their headers; a read of 8 bytes for each.

    Those that are gone, or lie in an archive tier, are left out.
    """

    def read(key: str) -> int | None:
        length = bytearray(8)
        try:
            repo.store.get_range(key, 0, memoryview(length))
        except (Archived, ObjectNotFound, ShortRead):
            return None
        return max(0, sizes[key] - header_end(length))

    keys = sorted(packs)
    found = zip(keys, gather(read, keys), strict=True)
    return {key: data for key, data in found if data is not None}


def sparse(data: Mapping[str, int], live: Mapping[str, int]) -> frozenset[str]:
    """The packs of whose data less than half is needed."""
    return frozenset(key for key, nbytes in data.items() if 2 * live[key] < nbytes)
