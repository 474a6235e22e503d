"""Reading a whole checkpoint, to list each leaf that is not as it was written."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

from everstep.errors import CheckpointPruned, IntegrityError, ObjectNotFound
from everstep.events import Listener, Transferred, silent
from everstep.format.entries import Entry, Tensor
from everstep.format.index import Index
from everstep.format.limits import MAX_CHUNK_BYTES
from everstep.format.manifest import IndexRef, Manifest
from everstep.format.records import RunRecord
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.damage import Damage
from everstep.repository.fence import read_attempt
from everstep.repository.headers import check_header
from everstep.repository.keys import attempt_key, index_key, manifest_key, plan_key, run_key
from everstep.repository.objects import read_record
from everstep.repository.parallel import gather
from everstep.repository.plans import read_plan
from everstep.repository.readable import check_readable
from everstep.repository.readers import reading_long
from everstep.repository.reading import by_path, read_index, read_manifest
from everstep.repository.repository import Repository
from everstep.repository.spans import Span, check_span, places, spans
from everstep.repository.tombs import tombed

__all__ = ["verify"]


def verify(
    repo: Repository, checkpoint: Checkpoint, *, workers: int = 4, listener: Listener = silent
) -> list[Damage]:
    """Read all of a checkpoint's objects and list what is damaged; an empty list means that all is well.

    Each chunk is read once, however many leaves share it, in ranges of up to 16 MiB; at most ``workers``
    ranges are in memory at a time. Raises `CheckpointPruned`, and the store's errors when it cannot be
    told whether bytes are damaged (`AccessDenied`, `StoreUnavailable`, and first of all `Archived`).
    """
    try:
        manifest = read_manifest(repo, checkpoint)
    except IntegrityError as error:
        key = manifest_key(checkpoint.run, checkpoint.save, checkpoint.manifest)
        return [_object("manifest", key, checkpoint.manifest_size, error.message)]
    check_readable(repo, checkpoint, manifest.packs)
    entries = by_path(manifest.entries)
    with reading_long(repo, checkpoint):
        found = gather(lambda ref: _index(repo, checkpoint, ref, entries), manifest.indexes)
        damages = [*_records(repo, checkpoint), *(one for one in found if isinstance(one, Damage))]
        indexes = [one for one in found if isinstance(one, Index)]
        damages += _incomplete(manifest, indexes)
        damages += _packs(repo, indexes, workers, listener, str(checkpoint))
    if damages and tombed(repo, checkpoint.run, checkpoint.save):
        raise CheckpointPruned(
            f"{checkpoint} was pruned while it was read", run=checkpoint.run, step=checkpoint.step
        )
    return sorted(damages, key=lambda one: (one.key, one.offset, one.path, one.rank))


def _records(repo: Repository, checkpoint: Checkpoint) -> Iterator[Damage]:
    """The small records around the save that do not hold; a restore needs none of them, so one may be absent."""
    run, save = checkpoint.run, checkpoint.save
    reads: tuple[tuple[str, Callable[[], object]], ...] = (
        (run_key(run), lambda: read_record(repo.store, run_key(run), RunRecord)),
        (attempt_key(run, save.attempt), lambda: read_attempt(repo, run, save.attempt)),
        (plan_key(run, save), lambda: read_plan(repo, run, save)),
    )
    for key, read in reads:
        try:
            read()
        except IntegrityError as error:
            yield _object("record", key, 0, error.message)
        except ObjectNotFound:
            continue


def _index(
    repo: Repository, checkpoint: Checkpoint, ref: IndexRef, entries: Mapping[str, Entry]
) -> Index | Damage:
    try:
        return read_index(repo, checkpoint, ref, entries)
    except IntegrityError as error:
        key = index_key(checkpoint.run, checkpoint.save, ref.rank, ref.digest)
        return _object("index", key, ref.size, error.message, ref.rank)


def _object(what: str, key: str, size: int, error: str, rank: int = -1) -> Damage:
    return Damage(what=what, path="", rank=rank, key=key, offset=0, length=size, error=error)


def _incomplete(manifest: Manifest, indexes: Sequence[Index]) -> Iterator[Damage]:
    """The tensors whose boxes, in the indexes that can be read, are fewer elements than they have."""
    boxes = {(shard.path, shard.offsets, shard.sizes) for index in indexes for shard in index.shards}
    held: dict[str, int] = {}
    for path, _offsets, sizes in boxes:
        held[path] = held.get(path, 0) + math.prod(sizes)
    for entry in manifest.entries:
        if isinstance(entry, Tensor) and held.get(entry.path, 0) < math.prod(entry.shape):
            yield Damage(
                what="incomplete",
                path=entry.path,
                rank=-1,
                key="",
                offset=0,
                length=0,
                error=f"{held.get(entry.path, 0)} of its {math.prod(entry.shape)} elements are in the indexes",
            )


def _packs(
    repo: Repository, indexes: Sequence[Index], workers: int, listener: Listener, what: str
) -> Iterator[Damage]:
    packs = places(indexes)
    work = list(spans(packs))
    total = sum(span.length for span in work)
    rooms: SimpleQueue[memoryview] = SimpleQueue()
    for _ in range(workers):
        rooms.put(memoryview(bytearray(min(MAX_CHUNK_BYTES, max((s.length for s in work), default=0)))))
    lock = threading.Lock()
    done = 0

    def read(span: Span) -> list[Damage]:
        nonlocal done
        room = rooms.get()
        try:
            wrong = [
                Damage(
                    what=kind,
                    path=use.path,
                    rank=use.rank,
                    key=span.key,
                    offset=place.offset,
                    length=place.length,
                    error=error,
                )
                for place, kind, error in check_span(repo.store, span, room)
                for use in packs[span.key][place]
            ]
        finally:
            rooms.put(room)
        with lock:
            done += span.length
            listener(Transferred(what=f"verify {what}", done=done, total=total))
        return wrong

    with ThreadPoolExecutor(workers, thread_name_prefix="everstep-verify") as threads:
        headers = threads.map(lambda key: check_header(repo.store, key), packs)
        for wrong in threads.map(read, work):
            yield from wrong
        yield from (one for one in headers if one is not None)
