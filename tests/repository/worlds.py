"""Small worlds for the repository's tests: a store in memory, a fixed clock, saves of a few bytes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from everstep.errors import ObjectNotFound
from everstep.format.digests import digest_of
from everstep.format.entries import Container, Tensor
from everstep.format.index import Chunk, Index, Meta, Shard
from everstep.format.limits import FORMAT_MAJOR
from everstep.format.packs import PAGE, PackEntry, write_header
from everstep.repository.attempts import claim
from everstep.repository.catalogue import newest
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.fence import Attempt
from everstep.repository.opening import open_repository
from everstep.repository.reading import read_indexes
from everstep.repository.repository import Repository
from everstep.repository.saves import Save, begin, commit, write_index
from everstep.store.memory import MemoryStore
from everstep.store.protocol import Store

PLAN = digest_of(b"the plan of all ranks")
Leaves = Mapping[str, bytes]
_WORLDS = itertools.count(1)


def world(store: Store | None = None) -> Repository:
    """A repository whose clock stands and whose random bits count up, other ones in each world."""
    counter = itertools.count(next(_WORLDS) << 40)
    return open_repository(
        store or MemoryStore(),
        create=True,
        clock=lambda: 1_700_000_000.5,
        entropy=lambda n: f"{next(counter):0{2 * n}x}",
    )


def reopened(repo: Repository, store: Store, salt: int = 1) -> Repository:
    """The same repository through another store object, with random bits of its own."""
    counter = itertools.count(salt << 64)
    return Repository(
        store=store,
        record=repo.record,
        clock=repo.clock,
        entropy=lambda n: f"{next(counter):0{2 * n}x}",
    )


def write_pack(store: Store, save: Save, rank: int, parts: Sequence[bytes], number: int = 0) -> str:
    """One pack of the parts one after the other, behind a real header."""
    key = save.pack_key(rank, number)
    header = bytearray(PAGE)
    write_header(
        [PackEntry(f"part{n}", "U8", (len(p),), len(p)) for n, p in enumerate(parts)], memoryview(header)
    )
    store.create(key, header + b"".join(parts))
    return key


def make_index(
    save: Save,
    leaves: Leaves,
    *,
    rank: int = 0,
    known: Mapping[str, tuple[str, int, int]] | None = None,
    store: Store | None = None,
    plan: str = PLAN,
    metrics: Mapping[str, float] | None = None,
) -> Index:
    """The index of byte leaves; chunks that are ``known`` are referred to, others go into one pack."""
    known = dict(known or {})
    new = list(dict.fromkeys(body for body in leaves.values() if body and digest_of(body) not in known))
    own = write_pack(store, save, rank, new) if new and store is not None else save.pack_key(rank, 0)
    at = PAGE
    for body in new:
        known[digest_of(body)] = (own, at, len(body))
        at += len(body)
    packs: list[str] = []
    shards = []
    for path, body in leaves.items():
        chunks: tuple[Chunk, ...] = ()
        if body:
            key, offset, length = known[digest_of(body)]
            if key not in packs:
                packs.append(key)
            chunks = (Chunk(digest=digest_of(body), pack=packs.index(key), offset=offset, length=length),)
        shards.append(Shard(path=path, offsets=(0,), sizes=(len(body),), chunks=chunks))
    entries = [Container(path="", type="dict", keys=list(leaves))]
    entries += [
        Tensor(path=path, dtype="uint8", shape=(len(body),), framework="numpy")
        for path, body in leaves.items()
    ]
    return Index(
        format=FORMAT_MAJOR,
        run=save.run,
        save=str(save.id),
        rank=rank,
        world=save.world,
        plan=plan,
        packs=tuple(packs),
        entries=tuple(entries),
        shards=tuple(shards),
        meta=Meta(metrics=dict(metrics or {})),
        bytes=sum(map(len, leaves.values())),
        stored_bytes=sum(map(len, new)),
    )


def put(
    repo: Repository,
    attempt: Attempt,
    step: int,
    leaves: Leaves,
    *,
    bases: Sequence[Checkpoint] = (),
    metrics: Mapping[str, float] | None = None,
) -> Checkpoint:
    """A whole save, every rank writing the same leaves, chunks of the bases referred to."""
    save = begin(repo, attempt, step, bases=bases)
    known = known_chunks(repo, save.bases)
    for rank in range(save.world):
        index = make_index(save, leaves, rank=rank, known=known, store=repo.store, metrics=metrics)
        write_index(repo, save, index)
    return commit(repo, save, timeout_s=0, sleep=no_sleep)


def known_chunks(repo: Repository, bases: Sequence[Checkpoint]) -> dict[str, tuple[str, int, int]]:
    """The chunks that a save may refer to."""
    return {
        chunk.digest: (index.packs[chunk.pack], chunk.offset, chunk.length)
        for base in bases
        for index in read_indexes(repo, base)
        for shard in index.shards
        for chunk in shard.chunks
    }


def content(repo: Repository, checkpoint: Checkpoint) -> dict[str, bytes]:
    """Every leaf of rank 0, each chunk's digest compared."""
    index = read_indexes(repo, checkpoint)[0]
    found: dict[str, bytes] = {}
    for shard in index.shards:
        body = bytearray()
        for chunk in shard.chunks:
            part = bytearray(chunk.length)
            repo.store.get_range(index.packs[chunk.pack], chunk.offset, memoryview(part))
            assert digest_of(part) == chunk.digest
            body += part
        found[shard.path] = bytes(body)
    return found


def no_sleep(_seconds: float) -> None:
    """Waits of a test's world take no time."""


def keys(store: Store, prefix: str = "") -> list[str]:
    """All keys of a store."""
    return [found.key for found in store.list(prefix)]


def plant(store: Store, key: str, body: bytes = b"{}") -> None:
    """Put an object there as another process would have."""
    store.create(key, body)


def overwrite(store: Store, key: str, body: bytes) -> None:
    """Damage an object."""
    store.delete(key)
    store.create(key, body)


def last(repo: Repository, run: str = "run") -> Checkpoint:
    """The newest checkpoint, which must be there."""
    found = newest(repo, run)
    if found is None:
        raise ObjectNotFound("no checkpoint")
    return found


def started(store: Store | None = None, *, ranks: int = 1) -> tuple[Repository, Attempt]:
    """A fresh repository and its first attempt."""
    repo = world(store)
    return repo, claim(repo, "run", owner="test", world=ranks)


class Clockwork:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.waits = 0

    def sleep(self, seconds: float) -> None:
        """Move on."""
        self.seconds += seconds
        self.waits += 1

    def now(self) -> float:
        """The seconds slept so far."""
        return self.seconds
