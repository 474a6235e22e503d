"""What the ranks of `test_replicas` do; forked by `tests.zygote`."""

import os

import torch
import torch.distributed as dist

import everstep as es

__all__ = ["batch_statistics", "one_bit", "out_of_step"]


def start(rendezvous):
    """A gloo process group."""
    os.environ |= {"MASTER_ADDR": rendezvous[0], "MASTER_PORT": str(rendezvous[1])}
    dist.init_process_group("gloo")
    return dist.get_rank()


def refused(ckpt, step, state):
    """The error of a save, as words."""
    try:
        ckpt.save(step, state).wait()
    except es.EverstepError as error:
        return [type(error).__name__, str(error)]
    return None


def out_of_step(rendezvous, folder, *, tell):
    """Each rank begins with parameters of its own, which nobody meant; then with equal ones; then each its own, said so."""
    torch.manual_seed(start(rendezvous))
    model = torch.nn.Linear(300, 300)
    with es.Checkpointer(folder, "r") as ckpt:
        tell(refused(ckpt, 1, {"model": model}))
        for parameter in model.parameters():
            dist.broadcast(parameter.data, 0)
        tell(refused(ckpt, 2, {"model": model}))
        with torch.no_grad():
            model.bias += dist.get_rank()
        tell(refused(ckpt, 3, {"model": es.PerRank(model)}))
        tell([found.step for found in ckpt.checkpoints()])


def batch_statistics(rendezvous, folder, *, tell):
    """Running means differ by rank, as they do under data parallelism; rank 0's are what comes back."""
    rank = start(rendezvous)
    model = torch.nn.Sequential(
        torch.nn.Linear(300, 300), torch.nn.BatchNorm1d(300), torch.nn.BatchNorm1d(300)
    )
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0)
    for buffer in model.buffers():
        buffer.fill_(rank)
    with es.Checkpointer(folder, "r") as ckpt:
        tell(refused(ckpt, 1, {"model": model}))
        ckpt.restore({"model": model})
        tell(sorted({float(buffer.max()) for buffer in model.buffers()}))
    with es.Checkpointer(folder, "r", check_replicas=True) as ckpt:
        ckpt.restore({"model": model})
        model[1].running_mean.fill_(rank)
        tell(refused(ckpt, 2, {"model": model}))


def one_bit(rendezvous, folder, *, tell):
    """One bit of one rank is wrong, deep in a replica."""
    rank = start(rendezvous)
    state = {"a": torch.zeros(100_000), "b": torch.zeros(3)}
    if rank == 1:
        state["a"][77_777] = 1.0
    with es.Checkpointer(folder, "r", check_replicas=True) as ckpt:
        tell(refused(ckpt, 1, state))
        state["a"][77_777] = 0.0
        tell(refused(ckpt, 2, state))
