"""Make the frozen store of several ranks: ``python -m tests.golden.make_ranks v1``. Only for a new version."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from everstep.format.box import Box
from everstep.format.entries import Alias, Container, Tensor, Value
from everstep.format.layouts import make_layout, parts, sharers
from everstep.repository.attempts import claim
from everstep.repository.opening import open_repository
from everstep.repository.saves import commit
from everstep.store.local import LocalStore
from tests.repository.rank_worlds import Held, State, written

HERE = Path(__file__).parent
RANKS = 3


def numbers(path, shape):
    """The numbers of a tensor, other ones for each path."""
    start = sum(path.encode())
    return (np.arange(start, start + np.prod(shape, dtype=int)) / 8).astype("<f4").reshape(shape)


def leaf(path, shape, layout=None):
    """A tensor's entry."""
    return Tensor(path=path, dtype="float32", shape=shape, framework="torch", layout=layout)


def laid(shape, placements, ranks, names=()):
    """A layout on a mesh of these ranks."""
    return make_layout(shape=shape, ranks=ranks, placements=placements, names=names)


def tensors(rank):
    """What a rank has: cut along rows, unevenly, in strides, and along columns on two ranks in another order."""
    return (
        leaf("model/rows", (7, 2), laid((RANKS,), ("shard:0",), range(RANKS), ("dp",))),
        leaf("model/few", (2, 2), laid((RANKS,), ("shard:0",), range(RANKS))),
        leaf("model/strided", (12,), laid((RANKS,), ("strided:0:2",), range(RANKS))),
        leaf("model/columns", (3, 5), laid((2,), ("shard:1",), (2, 0))),
        leaf("model/none", (0, 4), laid((RANKS,), ("shard:0",), range(RANKS))),
        leaf("model/bias", (5,)),
        leaf(f"loader/{rank}/buffer", (2,)),
        leaf(
            "stages/table",
            (4, 2),
            laid((2,), ("replicate",), (0, 2)) if rank != 1 else laid((1,), ("replicate",), (1,)),
        ),
        leaf(f"stages/{rank}", (3,), laid((1,), ("replicate",), (rank,))),
    )


def state(rank):
    """The whole state of a rank, as entries and as what it holds."""
    found = tensors(rank)
    held = []
    for one in found:
        body = numbers(one.path, one.shape)
        if one.layout is None:
            alone = (rank,) if one.path.startswith("loader/") else None
            held.append(Held(one.path, Box.whole(one.shape), body.tobytes(), alone))
            continue
        for part in parts(one.layout, one.shape, rank):
            where = tuple(slice(a, a + n) for a, n in zip(part.box.offsets, part.box.sizes, strict=True))
            replicas = sharers(one.layout, rank, part.coordinate)
            held.append(Held(one.path, part.box, body[where].tobytes(), replicas))
    names = [one.path.split("/")[1] for one in found[:6]]
    entries = (
        Container(path="", type="dict", keys=["model", "loader", "stages", "step"]),
        Container(path="model", type="module", keys=[*names, "tied"], name="torch.nn.Module"),
        *found[:6],
        Alias(path="model/tied", of="model/rows"),
        Container(path="loader", type="per_rank", keys=[rank]),
        Container(path=f"loader/{rank}", type="dict", keys=["buffer", "position"]),
        found[6],
        Value(path=f"loader/{rank}/position", value=100 + rank),
        Container(path="stages", type="stage", keys=["table", str(rank)]),
        *found[7:],
        Value(path="step", value=5),
    )
    return State(entries, tuple(held))


def make(folder):
    """One checkpoint of three ranks."""
    repo = open_repository(LocalStore(folder), create=True)
    attempt = claim(repo, "wide", owner="golden", world=RANKS)
    save, outlines = written(repo, attempt, 5, [state(rank) for rank in range(RANKS)])
    return commit(repo, save, outlines, timeout_s=0)


if __name__ == "__main__":
    make(HERE / f"ranks-{sys.argv[1]}")
