"""A training on several ranks whose newest checkpoint is repacked between two saves; forked by `tests.zygote`."""

from itertools import pairwise
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

import everstep as es
from everstep.repository.catalogue import checkpoints
from everstep.repository.opening import open_repository
from everstep.retention.repack import repack
from everstep.retention.sweep import sweep
from everstep.store.local import LocalStore
from tests.checkpointer.rank_models import start
from tests.retention.thin import bury_all, total

__all__ = ["FROZEN", "MORE", "trained"]

FROZEN = 40_000
MORE = 400_000


def made(mesh, step):
    """Rows over the ranks: a few that never change, many that always do, and from step 30 on as many that do not."""

    def rows(count, first):
        full = torch.arange(count, dtype=torch.float32).reshape(-1, 4) + first
        return distribute_tensor(full, mesh, [Shard(0)], src_data_rank=None)

    state = {"frozen": rows(FROZEN // 4, 0), "head": rows(MORE // 4, step), "step": step}
    return {**state, "more": rows(MORE // 4, -1000)} if step >= 30 else state


def trained(rendezvous, folder, *, tell):
    """Saves at 10 to 30, a prune to the newest and a repack by rank 0, saves at 40 and 50; each restored at the end.

    Rank 0 tells what the store took in for each of the last two.
    """
    start(rendezvous)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    sizes = []
    with es.Checkpointer(folder, "run") as ckpt:
        for step in (10, 20, 30, 40, 50):
            ckpt.save(step, made(mesh, step)).wait()
            dist.barrier()
            if dist.get_rank() == 0:
                repo = open_repository(LocalStore(Path(folder)), create=False)
                if step == 30:
                    bury_all(repo, *checkpoints(repo, "run")[1:])
                    sweep(repo, None, grace_s=0)
                    (pair,) = repack(repo).rewritten
                    assert pair[1].world == dist.get_world_size()
                    sweep(repo, None, grace_s=0)
                sizes.append(total(repo.store))
            dist.barrier()
    with es.Checkpointer(folder, "run") as ckpt:
        for step in (30, 40, 50):
            state = made(mesh, step)
            for leaf in state.values():
                if isinstance(leaf, torch.Tensor):
                    leaf.to_local().fill_(-1)
            ckpt.restore(state, step=step)
            wanted = made(mesh, step)
            assert state["step"] == step
            assert all(
                torch.equal(state[name].to_local(), wanted[name].to_local())
                for name in ("frozen", "head", "more")
            )
    tell([after - before for before, after in pairwise(sizes[2:])])
