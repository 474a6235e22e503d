"""Folders that torch's own storage writes: run by `Pool` on each rank."""

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.tensor import Shard, distribute_tensor

from tests.integrations.dcp import jobs


def write(folder):
    """A tensor cut into uneven rows, and one that all ranks have."""
    jobs.takes_part("rows")
    whole = torch.arange(63.0).reshape(9, 7)
    state = {"w": distribute_tensor(whole, jobs.mesh_of((4,)), [Shard(0)]), "same": torch.ones(3), "n": 1}
    dcp.save(state, checkpoint_id=folder)
