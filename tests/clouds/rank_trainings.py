"""Ranks that train on a cloud: by gloo, and with nothing but the checkpoint store between them."""

import os
import socket

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

import everstep as es

__all__ = ["alone", "halves", "sharded", "thawing"]

SHAPE = (301, 200)


def sharded(rendezvous, url, *, tell):
    """Saves rows of a tensor, and restores them as columns."""
    host, port = rendezvous
    os.environ |= {"MASTER_ADDR": host, "MASTER_PORT": str(port)}
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    whole = torch.arange(SHAPE[0] * SHAPE[1], dtype=torch.float32).reshape(SHAPE)
    with es.Checkpointer(url, "r") as ckpt:
        assert ckpt.restore({"w": torch.zeros(1)}) is None
        state = {
            "w": distribute_tensor(whole, mesh, [Shard(0)], src_data_rank=None),
            "b": whole[0].clone(),
            "mine": es.PerRank(dist.get_rank()),
        }
        ckpt.save(3, state).wait()
    with es.Checkpointer(url, "r") as ckpt:
        state = {
            "w": distribute_tensor(torch.zeros(SHAPE), mesh, [Shard(1)], src_data_rank=None),
            "b": torch.zeros(SHAPE[1]),
            "mine": es.PerRank(-1),
        }
        assert ckpt.restore(state) == 3
        tell(
            [
                torch.equal(state["w"].full_tensor(), whole),
                torch.equal(state["b"], whole[0]),
                state["mine"].value == dist.get_rank(),
            ]
        )


def alone(url, *, tell):
    """Replicas and a part by rank, without any process group; a launch that restores goes on."""
    rank = int(os.environ["RANK"])
    state = {"b": torch.zeros(500), "mine": es.PerRank(torch.zeros(3)), "n": 0}
    with es.Checkpointer(url, "r") as ckpt:
        step = ckpt.restore(state) or 0
        right = step == 0 or (
            torch.equal(state["b"], torch.full((500,), float(step)))
            and torch.equal(state["mine"].value, torch.full((3,), float(10 * step + rank)))
            and state["n"] == step
        )
        tell([step, right])
        state["b"].fill_(step + 1)
        state["mine"].value.fill_(10 * (step + 1) + rank)
        state["n"] = step + 1
        ckpt.save(step + 1, state).wait()


def parts(rank, shared):
    """Two tensors that both ranks have alike, of which each writes one, or one that is each rank's own."""
    if shared:
        return {"v": torch.arange(300_000.0), "w": torch.arange(300_000.0) + 1}
    return {"w": es.PerRank(torch.full((3_000,), float(rank)))}


def tensors(state):
    """The tensors of such a state."""
    return [value.value if isinstance(value, es.PerRank) else value for value in state.values()]


def halves(url, shared, *, tell):
    """Saves two packs, one from each rank."""
    rank = int(os.environ["RANK"])
    with es.Checkpointer(url, "r") as ckpt:
        ckpt.restore(parts(rank, shared))
        ckpt.save(1, parts(rank, shared)).wait()
    tell("saved")


def thawing(url, shared, *, tell):
    """Restores on a node of its own; tells the error's code or that it was restored, whether the state is what it must
    be then, and the error's words.
    """
    rank = int(os.environ["RANK"])
    socket.gethostname = lambda: f"node{rank}"
    state, wanted = parts(rank, shared), tensors(parts(rank, shared))
    for tensor in tensors(state):
        tensor.fill_(-1)
    with es.Checkpointer(url, "r") as ckpt:
        try:
            ckpt.restore(state)
        except es.EverstepError as error:
            tell([error.code, all(bool((tensor == -1).all()) for tensor in tensors(state)), str(error)])
        else:
            same = all(torch.equal(one, other) for one, other in zip(tensors(state), wanted, strict=True))
            tell(["restored", same, ""])
