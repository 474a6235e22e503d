"""Packs from one store to another, each chunk verified on the way."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from everstep.errors import CorruptChunk, CorruptObject, MissingObject
from everstep.events import Listener, Transferred
from everstep.format.digests import digest_of
from everstep.format.packs import parse_header
from everstep.repository.headers import header_end, size_of
from everstep.repository.objects import create_same
from everstep.repository.spans import Place, Use
from everstep.store.protocol import Store

__all__ = ["copy_packs"]

_READ_BYTES = 16 * 2**20


def copy_packs(
    source: Store,
    destination: Store,
    packs: Mapping[str, Mapping[Place, Sequence[Use]]],
    *,
    workers: int,
    listener: Listener,
    what: str,
) -> None:
    """Copy whole packs under their keys; what is there with the same size is read and verified instead.

    Up to ``workers`` packs are in memory at a time. Raises `CorruptChunk` naming leaf, rank, key and
    offset, or another `IntegrityError` naming the key.
    """
    sizes = {key: size_of(source, key) for key in packs}
    total = sum(size or 0 for size in sizes.values())
    lock = threading.Lock()
    done = 0

    def copy(key: str) -> None:
        nonlocal done
        size = sizes[key]
        if size is None:
            raise MissingObject(f"{source.url} lacks the pack {key}", key=key, store=source.url)
        there = size_of(destination, key)
        body = _read(source if there is None else destination, key, size if there is None else there)
        _check(body, packs[key], key, source.url if there is None else destination.url)
        if there is None:
            create_same(destination, key, body)
        elif there != size:
            raise CorruptObject(
                f"{key} has {there} bytes in {destination.url} and {size} in {source.url}", key=key
            )
        with lock:
            done += size
            listener(Transferred(what=what, done=done, total=total))

    with ThreadPoolExecutor(workers, thread_name_prefix="everstep-copy") as threads:
        for _ in threads.map(copy, packs):
            pass


def _read(store: Store, key: str, size: int) -> bytearray:
    body = bytearray(size)
    view = memoryview(body)
    for start in range(0, size, _READ_BYTES):
        store.get_range(key, start, view[start : start + _READ_BYTES])
    return body


def _check(body: bytearray, wanted: Mapping[Place, Sequence[Use]], key: str, url: str) -> None:
    """Compare every chunk's digest, and the header with the pack's size."""
    view = memoryview(body)
    for place, uses in wanted.items():
        if digest_of(view[place.offset : place.end]) != place.digest:
            raise CorruptChunk(
                f"leaf {uses[0].path!r} of rank {uses[0].rank} is damaged: {key} in {url},"
                f" {place.length} bytes at {place.offset}",
                hint="nothing was committed; copy another checkpoint, or list all damage with: everstep verify",
                key=key,
                store=url,
                path=uses[0].path,
                rank=uses[0].rank,
                offset=place.offset,
            )
    parse_header(bytes(view[: header_end(body)]), len(body), what=key)
