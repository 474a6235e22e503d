"""Finding the indexes that a restore needs: just those of the ranks that wrote what is wanted, without asking."""

import math
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.format.box import Box
from everstep.format.entries import Container, Tensor, Value
from everstep.format.layouts import make_layout, parts, sharers
from everstep.plan import locate, plan_save


@dataclass(frozen=True)
class Piece:
    path: str
    box: Box
    nbytes: int
    replicas: tuple[int, ...] | None = None


def pieces_of(entries, rank, item=4):
    """What a rank holds of the tensors that all ranks have."""
    for entry in entries:
        if not isinstance(entry, Tensor):
            continue
        if entry.layout is None:
            yield Piece(entry.path, Box.whole(entry.shape), item * math.prod(entry.shape))
            continue
        for part in parts(entry.layout, entry.shape, rank):
            shared = sharers(entry.layout, rank, part.coordinate)
            yield Piece(entry.path, part.box, item * part.box.elements, shared)


def written(entries, world):
    """For each rank the pieces it writes."""
    found = []
    for rank in range(world):
        pieces = list(pieces_of(entries, rank))
        plan = plan_save(pieces, rank=rank, world=world, entries=())
        found.append([pieces[position] for position in plan.writes])
    return found


def writers(pieces, wanted):
    """Who wrote elements of the wanted boxes, the slow way."""
    return tuple(
        rank
        for rank, mine in enumerate(pieces)
        if any(p.path == w.path and w.nbytes and p.box.intersect(w.box) for p in mine for w in wanted)
    )


@st.composite
def cases(draw):
    """Tensors over random meshes of 1 to 3 dimensions, some tensors plain, and boxes wanted of them."""
    world = draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12]))
    entries = []
    meshes = []
    for _ in range(draw(st.integers(1, 2))):
        sizes = [n for n in (1, 2, 3, 4, 6, 8, 12) if world % n == 0]
        first = draw(st.sampled_from(sizes))
        second = draw(st.sampled_from([n for n in sizes if (world // first) % n == 0]))
        shape = draw(st.sampled_from([(first,), (first, second), (first, second, world // first // second)]))
        ranks = draw(st.permutations(range(world)))[: math.prod(shape)]
        meshes.append((shape, ranks))
    for n in range(draw(st.integers(1, 8))):
        shape = tuple(draw(st.lists(st.integers(0, 9), min_size=1, max_size=3)))
        shape = (
            *shape[:-1],
            shape[-1] * draw(st.sampled_from([1, 20_000])),
        )  # small ones are dealt otherwise
        layout = None
        if draw(st.booleans()) or draw(st.booleans()):
            mesh, ranks = draw(st.sampled_from(meshes))
            d = st.integers(0, len(shape) - 1)
            placement = st.one_of(
                st.just("replicate"),
                st.builds("shard:{}".format, d),
                st.builds("strided:{}:{}".format, d, st.integers(1, 3)),
            )
            layout = make_layout(shape=mesh, ranks=ranks, placements=[draw(placement) for _ in mesh])
        entries.append(Tensor(path=f"w{n}", dtype="float32", shape=shape, framework="torch", layout=layout))
    wanted = []
    for entry in entries:
        for _ in range(draw(st.integers(0, 2))):
            offsets = tuple(draw(st.integers(0, n)) for n in entry.shape)
            sizes = tuple(draw(st.integers(0, n - o)) for n, o in zip(entry.shape, offsets, strict=True))
            wanted.append(Piece(entry.path, Box(offsets, sizes), 4 * math.prod(sizes)))
    return world, entries, wanted


@settings(max_examples=150, deadline=None)
@given(cases())
def test_just_the_ranks_that_wrote_it(case):
    """Over any meshes, placements and shapes: the ranks found are those that wrote elements of what is wanted."""
    world, entries, wanted = case
    assert locate(wanted, entries, world) == writers(written(entries, world), wanted)


def test_a_rank_s_own_part_is_in_its_index():
    """What lies below a per_rank container is that rank's; beside it a replica has one writer of all."""
    entries = [
        Container(path="", type="dict", keys=["loader", "model"]),
        Container(path="loader", type="per_rank", keys=[0, 2]),
        *(
            entry
            for rank in (0, 2)
            for entry in (
                Container(path=f"loader/{rank}", type="dict", keys=["seed", "state"]),
                Value(path=f"loader/{rank}/seed", value=1),
                Tensor(path=f"loader/{rank}/state", dtype="uint8", shape=(16,), framework="torch"),
            )
        ),
        Container(path="model", type="dict", keys=["w"]),
        Tensor(path="model/w", dtype="float32", shape=(4,), framework="torch"),
    ]
    own = Piece("loader/2/state", Box((0,), (16,)), 16)
    assert locate([own], entries, 3) == (2,)
    assert locate([Piece("model/w", Box((0,), (4,)), 16)], entries, 3) == (0,)


def test_what_the_checkpoint_lacks_is_nowhere():
    """A path without a tensor adds no rank: planning the reads then names it."""
    assert locate([Piece("gone", Box((0,), (4,)), 16)], [], 2) == ()


def test_one_share_of_a_large_job_needs_one_index():
    """Of 1,000 tensors over 2,048 ranks a rank that wants its own share is led to itself alone."""
    layout = make_layout(shape=(2048,), ranks=range(2048), placements=["shard:0"])
    entries = [
        Tensor(path=f"w{n}", dtype="float32", shape=(8192, 8), framework="torch", layout=layout)
        for n in range(1000)
    ]
    wanted = [Piece(f"w{n}", Box((77 * 4, 0), (4, 8)), 128) for n in range(1000)]
    assert locate(wanted, entries, 2048) == (77,)


def test_many_groups_of_replicas_cut_alike():
    """All of a tensor kept by 64 groups of 4 replicas: from each group just the rank that wrote its piece."""
    layout = make_layout(shape=(4, 64), ranks=range(256), placements=["replicate", "shard:0"])
    entries = [
        Tensor(path=f"w{n}", dtype="float32", shape=(128 + n, 2), framework="torch", layout=layout)
        for n in range(9)
    ]
    wanted = [Piece("w5", Box((0, 0), (133, 2)), 133 * 8)]
    found = locate(wanted, entries, 256)
    assert found == writers(written(entries, 256), wanted)
    assert len(found) == len(range(0, 133, 3))
