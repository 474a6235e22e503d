"""States of which ranks have different parts: stages, values by rank, arrays of NumPy; forked by `tests.zygote`."""

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

import everstep as es
from tests.checkpointer.rank_models import start

__all__ = ["again", "arrays", "from_jax", "made", "staged"]

LAYERS = 4


class Position:
    """A loader that counts what it gave."""

    def __init__(self, given):
        self.given = given

    def state_dict(self):
        return {"given": self.given}

    def load_state_dict(self, state):
        self.given = state["given"]


def layer(n, seed):
    """One layer; its numbers follow from its place in the whole and the seed."""
    made = torch.nn.Linear(3, 2)
    generator = torch.Generator().manual_seed(100 * seed + n)
    for parameter in made.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator)
    return made


def staged(*, stages, seed, stepped):
    """A pipeline of so many stages over the ranks, several ranks for one where there are more ranks; one: no stages."""
    world, rank = dist.get_world_size(), dist.get_rank()
    each, width = world // stages, LAYERS // stages
    stage = rank // each
    own = range(stage * width, (stage + 1) * width)
    part = torch.nn.ModuleDict({str(n): layer(n, seed) for n in own})
    optimizer = torch.optim.AdamW(part.parameters(), lr=0.0)
    if stepped:
        for parameter in part.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        for parameter, held in optimizer.state.items():
            held["exp_avg"].copy_(parameter.detach() * 2)
    if stages == 1:
        return {"model": part, "optimizer": optimizer}
    ranks = list(range(stage * each, (stage + 1) * each))
    return {"model": es.Stage(part, ranks=ranks), "optimizer": es.Stage(optimizer, ranks=ranks)}


def wrong(state, seed):
    """What of the stages here is not that of the seed."""
    bare = {key: one.value if isinstance(one, es.Stage) else one for key, one in state.items()}
    found = []
    for n, here in bare["model"].items():
        for name, due in layer(int(n), seed).named_parameters():
            parameter = getattr(here, name)
            if not torch.equal(parameter, due):
                found.append(f"{n}.{name}")
            if not torch.equal(bare["optimizer"].state[parameter]["exp_avg"], due.detach() * 2):
                found.append(f"{n}.{name} exp_avg")
    return found


def whole(seed):
    """Numbers that follow from the seed."""
    return torch.arange(35.0).reshape(7, 5) + seed


def made(seed):
    """A part by rank, with and without `resize`, tied and tensors in two layouts."""
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    rows = distribute_tensor(whole(seed), mesh, [Shard(0)], src_data_rank=None)
    return {
        "rows": rows,
        "tied": rows,
        "half": distribute_tensor(whole(seed).bfloat16(), mesh, [Shard(1)], src_data_rank=None),
        "all": distribute_tensor(whole(seed), mesh, [Replicate()], src_data_rank=None),
        "mine": es.PerRank({"rank": rank, "seed": seed}),
        "loader": es.PerRank(Position(10 * rank + seed), resize=shared_out),
    }


def shared_out(parts, rank, world):
    """All that was given, dealt anew."""
    given = sum(part["given"] for part in parts)
    return {"given": given // world + (rank < given % world)}


def again(rendezvous, folder, stages, *, tell):
    """Restores what is there and tells it; then saves the next step. ``stages``: of the pipeline."""
    start(rendezvous)
    with es.Checkpointer(folder, "stages") as ckpt:
        before = staged(stages=stages, seed=0, stepped=False)
        step = ckpt.restore(before)
        tell([step, [] if step is None else wrong(before, step)])
        ckpt.save((step or 0) + 1, staged(stages=stages, seed=(step or 0) + 1, stepped=True)).wait()
    with es.Checkpointer(folder, "parts") as ckpt:
        state = made(50)
        step = ckpt.restore(state)
        if step is None:
            ckpt.save(1, made(1)).wait()
            return
        tell(
            [
                torch.equal(state["rows"].full_tensor(), whole(1)),
                state["tied"] is state["rows"],
                torch.equal(state["half"].full_tensor(), whole(1).bfloat16()),
                torch.equal(state["all"].full_tensor(), whole(1)),
                sorted(ckpt.coverage.resized),
            ]
        )
        tell([state["mine"].value, state["loader"].value.given])


def arrays(rendezvous, folder, *, tell):
    """The tensors of other ranks in arrays of NumPy."""
    start(rendezvous)
    with es.Checkpointer(folder, "parts") as ckpt:
        state = {"rows": np.zeros((7, 5), np.float32), "all": np.zeros((7, 5), np.float32)}
        ckpt.restore(state, strict=False, skip=["tied", "half", "mine", "loader"])
        tell([bool((state[name] == whole(1).numpy()).all()) for name in state])


def from_jax(rendezvous, folder, *, tell):
    """What two processes of jax have saved, in tensors of torch on as many ranks as there are."""
    start(rendezvous)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    zeros = torch.zeros(6, 4)
    state = {
        "rows": distribute_tensor(torch.zeros(8, 4), mesh, [Shard(0)], src_data_rank=None),
        "columns": distribute_tensor(zeros.bfloat16(), mesh, [Shard(1)], src_data_rank=None),
        "all": zeros.clone(),
    }
    with es.Checkpointer(folder, "jax") as ckpt:
        ckpt.restore(state)
    due = torch.arange(24.0).reshape(6, 4)
    tell(
        [
            torch.equal(state["rows"].full_tensor(), torch.cat([due, torch.zeros(2, 4)])),
            torch.equal(state["columns"].full_tensor(), due.bfloat16()),
            torch.equal(state["all"], due),
        ]
    )
