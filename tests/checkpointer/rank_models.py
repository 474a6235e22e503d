"""A model with its optimizer in each of the ways that torch spreads one over ranks; forked by `tests.zygote`."""

import os

import torch
import torch._dynamo  # the first step of an optimizer imports it: here, once for all ranks
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import everstep as es

__all__ = ["restored", "saved", "start", "wrong"]


def start(rendezvous):
    """A gloo process group; its store is a TCPStore in the process of rank 0."""
    host, port = rendezvous
    os.environ |= {"MASTER_ADDR": host, "MASTER_PORT": str(port)}
    dist.init_process_group("gloo")


class Net(torch.nn.Module):
    """Sizes that no mesh divides, a bias of one element, one weight under two names, a buffer."""

    def __init__(self, seed):
        super().__init__()
        self.up = torch.nn.Linear(5, 7)
        self.down = torch.nn.Linear(7, 5)
        self.head = torch.nn.Linear(5, 1)
        self.same = torch.nn.Linear(5, 1, bias=False)
        self.same.weight = self.head.weight
        self.register_buffer("seen", torch.tensor([seed, seed + 1]))
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator)

    def forward(self, inputs):
        """Any use of all parameters."""
        return self.head(self.down(self.up(inputs).relu())) + self.same(inputs)


def spread(net, how):
    """The model on the ranks of this process group: alone, as replicas, or cut in one of torch's ways."""
    world = dist.get_world_size()
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    match how:
        case "plain":
            return net
        case "ddp":
            return torch.nn.parallel.DistributedDataParallel(net).module
        case "fsdp":
            fully_shard(net.up)
            return fully_shard(net)
        case "tp":
            return parallelize_module(net, init_device_mesh("cpu", (world,)), plan)
        case "fsdp+tp":
            mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("dp", "tp"))
            parallelize_module(net, mesh["tp"], plan)
            return fully_shard(net, mesh=mesh["dp"])
        case "hsdp":
            mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replica", "shard"))
            return fully_shard(net, mesh=mesh)
        case "hsdp+tp":
            mesh = init_device_mesh("cpu", (2, world // 4, 2), mesh_dim_names=("replica", "shard", "tp"))
            parallelize_module(net, mesh["tp"], plan)
            return fully_shard(net, mesh=mesh["replica", "shard"])
    raise AssertionError(how)


def training(how, *, seed, stepped):
    """The state of a training; ``stepped``: its optimizer has moments, which follow from the parameters' numbers."""
    net = spread(Net(seed), how)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    if stepped:
        for group in optimizer.param_groups:
            group["lr"] = 0.0  # the step makes the moments, and leaves the parameters
        for parameter in net.parameters():
            parameter.grad = torch.zeros_like(parameter)
        for _ in range(3):
            optimizer.step()
            scheduler.step()
        for parameter, held in optimizer.state.items():
            held["exp_avg"].copy_(parameter.detach() * 2 + 1)
            held["exp_avg_sq"].copy_(parameter.detach() * parameter.detach())
    return {"model": net, "optimizer": optimizer, "scheduler": scheduler, "epoch": seed}


def wrong(state, seed):
    """What of a state is not, bit for bit, that of a seed; tensors are put together as torch understands them."""
    net, optimizer = Net(seed), state["optimizer"]
    found = [] if state["epoch"] == seed else ["epoch"]
    wanted = dict(net.named_parameters())
    for name, parameter in state["model"].named_parameters():
        due = wanted.pop(name).detach()
        held = optimizer.state[parameter]
        for what, here, whole in (
            ("", parameter.detach(), due),
            (" exp_avg", held["exp_avg"], due * 2 + 1),
            (" exp_avg_sq", held["exp_avg_sq"], due * due),
            (" step", held["step"], torch.tensor(3.0)),
        ):
            if not torch.equal(here.full_tensor() if isinstance(here, DTensor) else here, whole):
                found.append(name + what)
            if what.startswith(" exp") and (
                type(here) is not DTensor if isinstance(parameter, DTensor) else isinstance(here, DTensor)
            ):
                found.append(f"{name}{what} is a {type(here).__name__}")
    if state["model"].same.weight is not state["model"].head.weight:
        found.append("untied")
    if not torch.equal(state["model"].seen, net.seen):
        found.append("seen")
    if state["scheduler"].last_epoch != 3:
        found.append("scheduler")
    return [*found, *wanted]


def saved(rendezvous, folder, ways, *, tell):
    """Saves, in one process group, a run for each of the ``ways``."""
    start(rendezvous)
    for way in ways:
        with es.Checkpointer(folder, f"{way.replace('+', '-')}{dist.get_world_size()}") as ckpt:
            ckpt.save(3, training(way, seed=7, stepped=True)).wait()
    tell("saved")


def restored(rendezvous, folder, runs, ways, *, tell):
    """Restores each of the ``runs`` in each of the ``ways``, an optimizer that has not stepped; tells what is wrong."""
    start(rendezvous)
    for run in runs:
        with es.Checkpointer(folder, run) as ckpt:
            for n, way in enumerate(ways):
                state = training(way, seed=n, stepped=n % 2 == 1)
                step = ckpt.restore(state)
                problems = wrong(state, 7)
                if step != 3 or problems:
                    tell([run, way, step, problems])
    tell("done")
