"""Saves and restores over a store that counts; forked by `tests.zygote`."""

import socket
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

import everstep as es
from everstep.store.count import Count
from everstep.store.local import LocalStore
from tests.checkpointer.rank_models import start

__all__ = ["LARGE", "eighth", "large", "pruned", "replicas", "trained"]

ROWS, COLUMNS, LEAVES = 600, 500, 8
LARGE = (6400, 2048)
"""More than six chunks of float32."""


class Counted:
    """What one rank asks of its store, told in parts."""

    def __init__(self, folder, tell):
        self.store = Count(LocalStore(Path(folder)))
        self._tell = tell

    def told(self, part):
        """The calls as verbs with the kind of key, the keys read, and the bytes since the last part."""
        store = self.store
        self._tell(
            {
                "part": part,
                "calls": [f"{verb} {kind(key)}" for verb, key in store.log],
                "read": sorted(key for verb, key in store.log if verb == "get"),
                "bytes_in": store.bytes_in,
                "bytes_out": store.bytes_out,
            }
        )
        store.clear()


def kind(key):
    """What a key is for."""
    if key.startswith("packs/"):
        return "pack"
    parts = key.strip("/").split("/")
    name = parts[2] if parts[0] == "runs" and len(parts) > 2 else parts[0]
    if name == "saves" and len(parts) > 4:
        return "manifest" if parts[4].startswith("manifest") else "index"
    return name


def spread(step, changed=LEAVES):
    """Rows over the ranks; the first leaves change with each step, the others stand still."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    base = torch.arange(float(ROWS * COLUMNS)).reshape(ROWS, COLUMNS)
    return {
        **{
            f"w{n}": distribute_tensor(
                base + (1000 * n + (step if n < changed else 0)), mesh, [Shard(0)], src_data_rank=None
            )
            for n in range(LEAVES)
        },
        "step": step,
    }


def same(state, other):
    """Whether this rank's parts are the same bits."""
    return all(torch.equal(state[f"w{n}"].to_local(), other[f"w{n}"].to_local()) for n in range(LEAVES))


def trained(rendezvous, folder, *, tell):
    """Two saves, a third of the same; then a launch that restores, and saves what has changed."""
    start(rendezvous)
    counted = Counted(folder, tell)
    with es.Checkpointer(counted.store, "r") as ckpt:
        assert ckpt.restore(spread(0)) is None
        counted.told("begin")
        for step, changed in ((1, 1), (2, 1), (3, 0)):
            ckpt.save(step, spread(step, changed)).wait()
            counted.told(f"save {step}")
    with es.Checkpointer(counted.store, "r") as ckpt:
        counted.told("open")
        state = spread(9)
        assert ckpt.restore(state) == 3
        assert same(state, spread(3, 0))
        counted.told("restore")
        ckpt.save(4, spread(4, 1)).wait()
        counted.told("save 4")


def pruned(rendezvous, folder, *, tell):
    """Three saves, of which the policy keeps the last."""
    start(rendezvous)
    counted = Counted(folder, tell)
    with es.Checkpointer(counted.store, "r", keep="last 1") as ckpt:
        counted.told("open")
        for step in (1, 2, 3):
            ckpt.save(step, spread(step)).wait()
    counted.told("saves and prunes")


def replicas(rendezvous, folder, *, tell):
    """Plain tensors that all ranks have alike, saved and restored."""
    start(rendezvous)
    counted = Counted(folder, tell)
    made = {f"w{n}": torch.full((250_000,), float(n)) for n in range(LEAVES)}
    with es.Checkpointer(counted.store, "r") as ckpt:
        ckpt.restore({name: torch.zeros(250_000) for name in made})
        counted.told("begin")
        ckpt.save(1, made).wait()
        counted.told("save")
    counted.store.clear()
    state = {name: torch.zeros(250_000) for name in made}
    with es.Checkpointer(counted.store, "r") as ckpt:
        assert ckpt.restore(state) == 1
    assert all(torch.equal(state[name], made[name]) for name in made)
    counted.told("restore")


def large(rendezvous, folder, *, tell):
    """One rank's large tensor."""
    start(rendezvous)
    with es.Checkpointer(folder, "large") as ckpt:
        ckpt.save(1, {"w": torch.arange(float(LARGE[0] * LARGE[1])).reshape(LARGE)}).wait()
    tell("saved")


def eighth(rendezvous, folder, *, tell):
    """An eighth of it on each of eight ranks: rows and columns for ranks of one node, rows for ranks of eight."""
    start(rendezvous)
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    counted = Counted(folder, tell)
    for part, d in (("rows", 0), ("columns", 1), ("nodes", 0)):
        if part == "nodes":
            socket.gethostname = lambda: f"node{rank}"
        counted.store.clear()
        state = {"w": distribute_tensor(torch.zeros(LARGE), mesh, [Shard(d)], src_data_rank=None)}
        with es.Checkpointer(counted.store, "large") as ckpt:
            assert ckpt.restore(state) == 1
        whole = torch.arange(float(LARGE[0] * LARGE[1])).reshape(LARGE)
        assert torch.equal(state["w"].to_local(), whole.chunk(8, d)[rank])
        counted.told(part)
