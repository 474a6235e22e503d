"""Who writes what."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.format.box import Box
from everstep.format.entries import Alias, Container, Layout, Tensor, Value
from everstep.plan import plan_save
from everstep.plan.dealing import SMALL_BYTES


@dataclass(frozen=True)
class Held:
    path: str
    nbytes: int
    replicas: tuple[int, ...] | None = None

    @property
    def box(self):
        return Box((0,), (self.nbytes,))


def test_alone_a_rank_writes_everything():
    """With one rank every piece is written, in order."""
    plan = plan_save([Held("a", 3), Held("b", 9), Held("c", 0)], rank=0, world=1, entries=())
    assert plan.writes == (0, 1, 2)
    assert plan.nbytes == 12


@given(st.lists(st.integers(0, 1000).map(lambda n: n * SMALL_BYTES // 50), max_size=40), st.integers(1, 7))
def test_replicas_are_written_once_and_evenly(sizes, world):
    """Each piece that all hold has one writer; of large ones no rank has more than the mean and the largest."""
    pieces = [Held(f"p{n:02}", size) for n, size in enumerate(sizes)]
    plans = [plan_save(pieces, rank=rank, world=world, entries=()) for rank in range(world)]
    assert sorted(n for plan in plans for n in plan.writes) == list(range(len(pieces)))
    small = [plan.writes for plan in plans]
    assert all(n in small[0] for n, size in enumerate(sizes) if size < SMALL_BYTES)
    large = [size for size in sizes if size >= SMALL_BYTES]
    first = sum(size for size in sizes if size < SMALL_BYTES)
    most = [plan.nbytes - (first if plan.rank == 0 else 0) for plan in plans]
    assert max(most) <= sum(large) / world + max(large, default=0)
    assert max(plan.nbytes for plan in plans) <= max(first, sum(sizes) / world) + max(large, default=0)
    assert all(list(plan.writes) == sorted(plan.writes) for plan in plans)


@given(st.permutations(range(6)))
def test_groups_of_replicas(order):
    """Shards shared by some ranks get one writer among these, whatever order each rank lists them in."""
    groups = {0: (0, 1), 1: (2, 3), 2: (0, 1), 3: (2, 3), 4: (0, 1, 2, 3), 5: (1,)}
    writers = []
    for rank in range(4):
        held = [Held(f"p{n}", 10 + n, groups[n]) for n in order if rank in groups[n]]
        plan = plan_save(held, rank=rank, world=4, entries=())
        writers += [held[n].path for n in plan.writes]
    assert sorted(writers) == [f"p{n}" for n in range(6)]


def test_a_stranger_among_the_replicas():
    """A piece whose replicas leave this rank out is refused by name."""
    with pytest.raises(ValueError, match="a: rank 0"):
        plan_save([Held("a", 1, (1, 2))], rank=0, world=3, entries=())


LAYOUT = Layout(shape=(2,), placements=("shard:0",))


def tree(rank=0, *, shape=(2,), dtype="int8", step=7, layout=LAYOUT, of="w", own="rng"):
    """The entries of one rank: what all have, and two parts of its own."""
    return (
        Container(path="", type="dict", keys=[own, "part", "w", "x", "tied", "step"]),
        Container(path=own, type="per_rank", keys=[rank]),
        Value(path=f"{own}/{rank}", value=rank),
        Container(path="part", type="stage", keys=[f"layer{rank}"]),
        Tensor(path=f"part/layer{rank}", dtype="int8", shape=(rank,), framework="torch"),
        Tensor(path="w", dtype=dtype, shape=shape, framework="torch", layout=layout),
        Tensor(path="x", dtype="int8", shape=(2,), framework="torch"),
        Alias(path="tied", of=of),
        Value(path="step", value=step),
    )


def test_the_digest_is_of_the_global_plan():
    """Ranks agree on it though their own parts differ; whatever else differs changes it."""

    def digest(entries, world=2):
        return plan_save([], rank=0, world=world, entries=entries).digest

    assert digest(tree(0)) == digest(tree(1))
    others = [
        digest(tree(), 3),
        digest(tree(shape=(3,))),
        digest(tree(dtype="uint8")),
        digest(tree(step=8)),
        digest(tree(layout=None)),
        digest(tree(of="x")),
        digest(tree(own="loader")),
        digest(tree()[:-1]),
    ]
    assert len({digest(tree()), *others}) == 9
