"""A training on several ranks that is asked for saves; forked by `tests.zygote`."""

import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

import everstep as es
from everstep.events import SaveCommitted
from everstep.repository.opening import open_repository
from everstep.repository.requests import answered, ask
from everstep.store.local import LocalStore
from tests.checkpointer.rank_models import start

__all__ = ["asked"]

UNTIL = 500


def made(mesh, step):
    """Rows over the ranks, whose every number is the step."""
    rows = distribute_tensor(torch.full((7, 5), float(step)), mesh, [Shard(0)], src_data_rank=None)
    return {"rows": rows, "step": step}


def asked(rendezvous, folder, every, *, tell):
    """Somebody asks through the store; a signal comes to the last rank; both come at once, to rank 0 and the first two.

    Each waits until the one before was saved. Tells when each was asked, every checkpoint with its reason, and the
    steps of the answers.
    """
    start(rendezvous)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    repository = None
    committed, began, requests = [], [], []

    def listen(event):
        if isinstance(event, SaveCommitted) and event.step < UNTIL:
            committed.append(event.step)

    with es.Checkpointer(folder, "r", every=every, listener=listen) as ckpt:
        state = made(mesh, 0)
        for step in ckpt.loop(state, until=UNTIL):
            state["rows"].to_local().fill_(step + 1)
            state["step"] = step + 1
            phase = torch.tensor([float(len(committed))])
            dist.all_reduce(phase, dist.ReduceOp.MIN)
            if len(began) <= phase.item() < 3:
                began.append(step + 1)
                repository = repository or open_repository(LocalStore(Path(folder)), create=False)
                if rank == 1 and len(began) != 2:
                    requests.append(ask(repository, "r", owner=f"rank{rank}"))
                if rank in {2: {last}, 3: {0, last}}.get(len(began), ()):
                    os.kill(os.getpid(), signal.SIGUSR2)
            time.sleep(0.02 if phase.item() < 3 else 0)
        found = {one.step: one.reason for one in ckpt.checkpoints()[::-1]}
    for step in found:
        state = made(mesh, -1)
        with es.Checkpointer(folder, "r") as ckpt:
            ckpt.restore(state, step=step)
        assert torch.equal(state["rows"].to_local(), made(mesh, step)["rows"].to_local())
        assert state["step"] == step
    tell({"began": began, "saved": list(found.items())})
    if rank == 1:
        tell([answered(repository, "r", one).step for one in requests])
