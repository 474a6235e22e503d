"""Staged packs into the store: hashed, without what is there already, one object per pack."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from everstep.errors import AccessDenied, AlreadyExists, EverstepError, SaveError, SaveFailed
from everstep.events import Listener, Transferred, silent
from everstep.format.digests import Digest, digest_of
from everstep.format.index import Chunk, Shard
from everstep.store.protocol import Store
from everstep.transfer.pacer import Pacer
from everstep.transfer.packing import close_gaps, finish
from everstep.transfer.stage import Staged, StagedPack
from everstep.transfer.workers import run_all

__all__ = ["Known", "Uploaded", "upload"]

Known = Mapping[Digest, tuple[str, int, int]]
"""Where chunks lie that need not be stored again: key of the pack, offset, length in bytes."""

_PACED = 2**20
_COMPARED = 8 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploaded:
    """Where this rank's bytes are: ``shards`` in the pieces' order, their chunks by position in ``packs``.

    ``packs`` are full keys: those written now, then older ones that chunks were found in. ``stored_bytes`` is the
    size of the objects written now.
    """

    packs: tuple[str, ...]
    shards: tuple[Shard, ...]
    stored_bytes: int


def _never() -> None:
    """The cancel check of an upload that nobody cancels."""


def upload(
    staged: Staged,
    *,
    store: Store,
    pack_key: Callable[[int], str],
    known: Known,
    pacer: Pacer | None = None,
    workers: int = 2,
    listener: Listener = silent,
    cancel: Callable[[], None] = _never,
) -> Uploaded:
    """Store each chunk that is neither ``known`` nor twice in this save; then let the staging memory go.

    Each worker takes a pack: hashes its chunks, closes the gaps that skipped ones leave, writes the header
    and creates the object, one request. A pack with nothing new is not written. ``cancel`` is called
    between chunks and raises to stop. Where a key exists already (the lost answer of an earlier try), the
    object is read back and must be the same bytes.

    Raises what ``cancel`` raises, and `AccessDenied` and `SaveError` as they are, since their classes say what to do;
    anything else as `SaveFailed` naming the key, from its cause. One error stops all workers.
    """
    work = _Upload(
        staged,
        store=store,
        pack_key=pack_key,
        known=known,
        pacer=pacer or Pacer(),
        listener=listener,
        cancel=cancel,
    )
    try:
        run_all(
            range(len(staged.packs)),
            work.pack,
            workers=min(workers, len(staged.packs)) or 1,
            name="everstep-upload",
        )
        return work.result()
    finally:
        staged.release()


class _Upload:
    """What the workers of one upload share."""

    def __init__(
        self,
        staged: Staged,
        *,
        store: Store,
        pack_key: Callable[[int], str],
        known: Known,
        pacer: Pacer,
        listener: Listener,
        cancel: Callable[[], None],
    ) -> None:
        self._staged = staged
        self._store = store
        self._pack_key = pack_key
        self._known = known
        self._pacer = pacer
        self._listener = listener
        self._cancel = cancel
        self._lock = threading.Lock()
        self._digests: dict[int, list[Digest]] = {}
        self._first: dict[Digest, tuple[int, int]] = {}  # the pack and part that store a chunk of this save
        self._places: dict[Digest, tuple[str, int, int]] = {}
        self._written: dict[int, str] = {}
        self._done = 0
        self._stored = 0

    def pack(self, number: int) -> None:
        """Hash, skip, close the gaps, write the header, create."""
        pack = self._staged.packs[number]
        digests = self._hash(pack)
        kept = [
            n
            for n, digest in enumerate(digests)
            if digest not in self._known and self._first.setdefault(digest, (number, n)) == (number, n)
        ]
        if kept:
            key = self._pack_key(number)
            parts = close_gaps(pack, [pack.layout.parts[n] for n in kept])
            body = finish(self._staged, pack, parts)
            self._cancel()
            _create(self._store, key, body)
            with self._lock:
                self._written[number] = key
                self._stored += body.nbytes
                for n, part in zip(kept, parts, strict=True):
                    self._places[digests[n]] = (key, part.offset, part.length)
        with self._lock:
            self._digests[number] = digests
            self._done += sum(part.length for part in pack.layout.parts)
            self._listener(Transferred(what="upload", done=self._done, total=self._staged.nbytes))

    def _hash(self, pack: StagedPack) -> list[Digest]:
        digests: list[Digest] = []
        owed = _PACED
        for part in pack.layout.parts:
            owed += part.length
            if owed >= _PACED:
                self._cancel()
                self._pacer.take(owed)
                owed = 0
            digests.append(digest_of(pack.image[part.offset : part.offset + part.length]))
        return digests

    def result(self) -> Uploaded:
        """Where everything is, once all packs are done."""
        keys = [self._written[number] for number in sorted(self._written)]
        packs = {key: number for number, key in enumerate(keys)}
        chunks: list[list[Chunk]] = [[] for _ in self._staged.pieces]
        for number, pack in enumerate(self._staged.packs):
            for part, digest in zip(pack.layout.parts, self._digests[number], strict=True):
                key, offset, length = self._known.get(digest) or self._places[digest]
                at = packs.setdefault(key, len(packs))
                chunks[part.piece].append(Chunk(digest, at, offset, length))
        shards = tuple(
            Shard(path=piece.path, offsets=piece.box.offsets, sizes=piece.box.sizes, chunks=tuple(found))
            for piece, found in zip(self._staged.pieces, chunks, strict=True)
        )
        return Uploaded(packs=tuple(packs), shards=shards, stored_bytes=self._stored)


def _create(store: Store, key: str, body: memoryview) -> None:
    try:
        try:
            store.create(key, body)
        except AlreadyExists as error:
            if not _same(store, key, body):
                raise SaveFailed(f"{key}: the key is taken by other bytes", key=key) from error
    except (AccessDenied, SaveError):
        raise
    except Exception as error:
        hint = error.hint if isinstance(error, EverstepError) else ""
        cause = error.message if isinstance(error, EverstepError) else f"{type(error).__name__}: {error}"
        raise SaveFailed(
            f"could not store {key} ({body.nbytes} bytes): {cause}",
            hint=hint,
            key=key,
            bytes=body.nbytes,
            cause=getattr(error, "code", type(error).__name__),
        ) from error


def _same(store: Store, key: str, body: memoryview) -> bool:
    """Whether the object has exactly these bytes: then it is one's own, and its answer was lost."""
    if {listed.size for listed in store.list(key) if listed.key == key} != {body.nbytes}:
        return False
    scratch = memoryview(bytearray(min(_COMPARED, body.nbytes)))
    for start in range(0, body.nbytes, _COMPARED):
        part = body[start : start + _COMPARED]
        found = scratch[: part.nbytes]
        store.get_range(key, start, found)
        if digest_of(found) != digest_of(part):
            return False
    return True
