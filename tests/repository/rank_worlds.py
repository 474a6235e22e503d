"""Saves of several ranks: sharded tensors, replicas, parts by rank, and the stages of a pipeline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from everstep.format.box import Box
from everstep.format.digests import digest_of
from everstep.format.entries import Alias, Container, Entry, Layout, Tensor, Value
from everstep.format.index import Chunk, Index, Meta, Shard
from everstep.format.layouts import make_layout, parts, sharers
from everstep.format.limits import FORMAT_MAJOR
from everstep.format.outline import Outline
from everstep.format.packs import PAGE, pack_entry, write_header
from everstep.plan.save import plan_save
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.fence import Attempt
from everstep.repository.repository import Repository
from everstep.repository.saves import Save, announce, begin, commit, join, write_index
from tests.repository.worlds import no_sleep

SHAPE = (7, 4)


@dataclass(frozen=True)
class Held:
    """A box that a rank holds, with its bytes."""

    path: str
    box: Box
    body: bytes
    replicas: tuple[int, ...] | None = None

    @property
    def nbytes(self) -> int:
        return len(self.body)


@dataclass(frozen=True)
class State:
    """One rank's state: its entries, and what it holds."""

    entries: tuple[Entry, ...]
    held: tuple[Held, ...]


def array(path: str, shape: tuple[int, ...]) -> np.ndarray:
    """The numbers of a tensor, other ones for each path."""
    start = digest_of(path.encode())
    return ((np.arange(math.prod(shape)) + int(start[:2], 16)) % 251).astype(np.uint8).reshape(shape)


def tensor(path: str, shape: tuple[int, ...] = SHAPE, layout: Layout | None = None) -> Tensor:
    """The entry of a tensor of bytes."""
    return Tensor(path=path, dtype="uint8", shape=shape, framework="torch", layout=layout)


def boxes(entry: Tensor, rank: int) -> list[Held]:
    """What a rank holds of a tensor that has a layout, or that is whole on all ranks."""
    whole = array(entry.path, entry.shape)
    if entry.layout is None:
        return [Held(entry.path, Box.whole(entry.shape), whole.tobytes())]
    found = []
    for part in parts(entry.layout, entry.shape, rank):
        where = tuple(slice(a, a + n) for a, n in zip(part.box.offsets, part.box.sizes, strict=True))
        replicas = sharers(entry.layout, rank, part.coordinate)
        found.append(Held(entry.path, part.box, whole[where].tobytes(), replicas))
    return found


def state(rank: int, world: int, *, mesh: Sequence[int] | None = None) -> State:
    """A model cut over the ranks, a bias on all, a tied table, a position by rank, and a stage for each rank."""
    shape = tuple(mesh or (world,))
    placements = ("replicate", "shard:0")[-len(shape) :] if len(shape) < 3 else ()
    layout = make_layout(shape=shape, ranks=range(world), placements=placements)
    alone = make_layout(shape=(1,), ranks=[rank], placements=("replicate",))
    table = make_layout(shape=(1,), ranks=[rank], placements=("replicate",))
    tensors = [
        tensor("model/w", layout=layout),
        tensor("model/b", (5,)),
        tensor("part/layers/table", (3,), table),
        tensor(f"part/layers/{rank}", (4,), alone),
    ]
    own = array(f"loader/{rank}", (2,))
    entries = (
        Container(path="", type="dict", keys=["model", "loader", "part", "step"]),
        Container(path="model", type="module", keys=["w", "b", "tied"], name="torch.nn.Module"),
        *tensors[:2],
        Alias(path="model/tied", of="model/w"),
        Container(path="loader", type="per_rank", keys=[rank]),
        tensor(f"loader/{rank}", (2,)),
        Container(path="part", type="stage", keys=["layers"], name=f"Stage{rank}"),
        Container(path="part/layers", type="dict", keys=["table", str(rank)]),
        *tensors[2:],
        Value(path="step", value=7),
    )
    held = [one for entry in tensors for one in boxes(entry, rank)]
    held.insert(2, Held(f"loader/{rank}", Box.whole((2,)), own.tobytes(), (rank,)))
    return State(entries, tuple(held))


def planned(rank: int, world: int, state: State) -> list[int]:
    """Which of its pieces a rank writes."""
    return list(plan_save(state.held, rank=rank, world=world, entries=state.entries).writes)


def pack(held: Sequence[tuple[Tensor, Held]]) -> bytes:
    """The bytes of a pack with these boxes."""
    header = bytearray(PAGE)
    entries = [pack_entry(one.path, one.dtype, one.shape, found.box) for one, found in held]
    write_header(entries, memoryview(header))
    return bytes(header) + b"".join(found.body for _, found in held)


def index_of(
    repo: Repository, save: Save, rank: int, state: State, *, writes: Sequence[int] | None = None
) -> Index:
    """What the rank writes of its state, by plan or as told; its pack is in the store."""
    plan = plan_save(state.held, rank=rank, world=save.world, entries=state.entries)
    mine = [state.held[n] for n in (plan.writes if writes is None else writes)]
    tensors = {one.path: one for one in state.entries if isinstance(one, Tensor)}
    key = save.pack_key(rank, 0)
    if mine:
        repo.store.create(key, pack([(tensors[one.path], one) for one in mine]))
    shards, at = [], PAGE
    for one in mine:
        chunks = (Chunk(digest_of(one.body), 0, at, len(one.body)),) if one.body else ()
        shards.append(Shard(path=one.path, offsets=one.box.offsets, sizes=one.box.sizes, chunks=chunks))
        at += len(one.body)
    return Index(
        format=FORMAT_MAJOR,
        run=save.run,
        save=str(save.id),
        rank=rank,
        world=save.world,
        plan=plan.digest,
        packs=(key,) if mine else (),
        entries=state.entries,
        shards=tuple(shards),
        meta=Meta(metrics={"loss": 0.5 + rank}, config={"$": "dict", "keys": [], "values": []}),
        bytes=sum(one.nbytes for one in mine),
        stored_bytes=sum(one.nbytes for one in mine),
    )


def joined(save: Save, attempt: Attempt, states: Sequence[State]) -> list[Save]:
    """The save as each rank knows it."""
    plan = plan_save(states[0].held, rank=0, world=save.world, entries=states[0].entries)
    told = announce(save, plan_digest=plan.digest)
    return [save, *(join(attempt, told, bases=save.bases) for _ in states[1:])]


def written(
    repo: Repository,
    attempt: Attempt,
    step: int,
    states: Sequence[State],
    *,
    writes: Mapping[int, Sequence[int]] | None = None,
) -> tuple[Save, list[Outline]]:
    """A save whose every rank has written its index, and what they tell. ``writes`` as in `index_of`, by rank."""
    save = begin(repo, attempt, step)
    saves = joined(save, attempt, states)
    told = writes or {}
    return save, [
        write_index(repo, saves[rank], index_of(repo, saves[rank], rank, one, writes=told.get(rank)))
        for rank, one in enumerate(states)
    ]


def put_ranks(
    repo: Repository, attempt: Attempt, step: int, *, mesh: Sequence[int] | None = None
) -> Checkpoint:
    """A whole save of all ranks."""
    states = [state(rank, attempt.world, mesh=mesh) for rank in range(attempt.world)]
    save, outlines = written(repo, attempt, step, states)
    return commit(repo, save, outlines, timeout_s=0, sleep=no_sleep)
