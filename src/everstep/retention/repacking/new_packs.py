"""A new pack made of chunks of old ones: each verified as it is read, the whole read back once it is written."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Final

from everstep.errors import CorruptChunk, CorruptObject, MissingObject, ObjectNotFound
from everstep.format.digests import digest_of
from everstep.format.packs import write_header
from everstep.repository.objects import create_same
from everstep.repository.spans import Place, Span, spans
from everstep.retention.repacking.moving import NewPack, header_entries
from everstep.store.protocol import Store

__all__ = ["write_pack"]

_WORKERS: Final = 4
_READ_BYTES: Final = 16 * 2**20


def write_pack(store: Store, key: str, pack: NewPack) -> None:
    """Read the chunks, write the pack under ``key``, and read it back.

    In memory are the pack and at most 4 ranges of 16 MiB. Raises `CorruptChunk` naming the leaf for a chunk that is not
    what was written, `MissingObject` for a pack that is gone, `CorruptObject` when the new pack does not read
    back as it was written.
    """
    body = bytearray(pack.size)
    view = memoryview(body)
    write_header(header_entries(pack), view[: pack.room])
    _fill(store, pack, view)
    create_same(store, key, body)
    _read_back(store, key, view)


def _fill(store: Store, pack: NewPack, view: memoryview) -> None:
    wanted: dict[str, dict[Place, int]] = {}
    for number, move in enumerate(pack.moves):
        wanted.setdefault(move.source, {})[Place(move.offset, move.length, move.digest)] = number

    def read(span: Span) -> None:
        room = memoryview(bytearray(span.length))
        try:
            store.get_range(span.key, span.offset, room)
        except ObjectNotFound as error:
            raise MissingObject(
                f"{store.url} lacks the pack {span.key}", key=span.key, store=store.url
            ) from error
        for place in span.places:
            number = wanted[span.key][place]
            part = room[place.offset - span.offset :][: place.length]
            if digest_of(part) != place.digest:
                raise _corrupt(store, pack, number)
            at = pack.places[number]
            view[at : at + place.length] = part

    with ThreadPoolExecutor(_WORKERS, thread_name_prefix="everstep-repack") as threads:
        for _ in threads.map(read, spans(wanted)):
            pass


def _corrupt(store: Store, pack: NewPack, number: int) -> CorruptChunk:
    move = pack.moves[number]
    return CorruptChunk(
        f"leaf {move.tensor.path!r} of rank {move.rank} is damaged: {move.source} in {store.url},"
        f" {move.length} bytes at {move.offset}",
        hint="nothing was rewritten or deleted; list all damage with: everstep verify",
        key=move.source,
        store=store.url,
        path=move.tensor.path,
        rank=move.rank,
        offset=move.offset,
    )


def _read_back(store: Store, key: str, view: memoryview) -> None:
    room = memoryview(bytearray(min(_READ_BYTES, len(view))))
    for start in range(0, len(view), _READ_BYTES):
        part = view[start : start + _READ_BYTES]
        found = room[: len(part)]
        store.get_range(key, start, found)
        if found != part:
            raise CorruptObject(
                f"{key} does not read back from {store.url} as it was written",
                hint="nothing was rewritten or deleted; check the store with: everstep doctor",
                key=key,
                store=store.url,
            )
