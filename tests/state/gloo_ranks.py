"""What ranks of a real process group do in the tests of sharded training: train, write, and restore on fewer of them."""

import functools
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from everstep.state import match
from tests.state.spreading import Store, written

WORLD = 4


class Net(nn.Module):
    """A small net with sizes that four ranks cannot share evenly, and one weight under two names."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(9, 6)
        self.up = nn.Linear(6, 10)
        self.down = nn.Linear(10, 6)
        self.norm = nn.LayerNorm(6)
        self.scale = nn.Parameter(torch.ones(1))
        self.head = nn.Linear(6, 9, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        """Tokens to scores."""
        h = self.embed(x)
        return self.head(self.norm(h + self.down(torch.relu(self.up(h))))) * self.scale


def seeded(seed):
    """The net with values of its own."""
    torch.manual_seed(seed)
    return Net()


def plain(seed):
    """Not spread at all."""
    return seeded(seed)


def fsdp(seed, *, shape, names=None, inner=True):
    """FSDP 2 on the first ranks, sharded or hybrid; None on the others."""
    mesh = mesh_of(shape, names)
    if mesh.get_coordinate() is None:
        return None
    net = seeded(seed)
    if inner:
        fully_shard(net.up, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def tensor_parallel(seed, *, shape, fsdp_too=False):
    """Tensor parallel in the last dimension of a mesh, its slices replicas of each other, or FSDP 2 over the first."""
    mesh = mesh_of(shape, ("dp", "tp"))
    if mesh.get_coordinate() is None:
        return None
    net = seeded(seed)
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    parallelize_module(net, mesh["tp"], plan)
    return fully_shard(net, mesh=mesh["dp"]) if fsdp_too else net


def mesh_of(shape, names):
    """A mesh of the first ranks, or of all."""
    if torch.Size(shape).numel() == WORLD:
        return init_device_mesh("cpu", shape, mesh_dim_names=names)
    return DeviceMesh("cpu", torch.arange(torch.Size(shape).numel()).reshape(shape), mesh_dim_names=names)


LAYS = {
    "plain": (1, plain),
    "fsdp 4": (4, functools.partial(fsdp, shape=(4,))),
    "fsdp 3": (3, functools.partial(fsdp, shape=(3,))),
    "fsdp 2": (2, functools.partial(fsdp, shape=(2,), inner=False)),
    "hsdp": (4, functools.partial(fsdp, shape=(2, 2), names=("copies", "shards"))),
    "tp": (2, functools.partial(tensor_parallel, shape=(1, 2))),
    "copies of tp": (4, functools.partial(tensor_parallel, shape=(2, 2))),
    "fsdp and tp": (4, functools.partial(tensor_parallel, shape=(2, 2), fsdp_too=True)),
}
"""How many ranks, and how the net lies on them."""


def join():
    """Be a rank of the real process group."""
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    place = os.environ["MEETING"]
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=WORLD)
    return rank


def whole(tensor):
    """All of a tensor, on each of its ranks."""
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def train(net):
    """Two steps; each rank has the same batch, so that plain and spread nets do the same."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05, foreach=False)
    for step in range(2):
        generator = torch.Generator().manual_seed(step)
        batch = torch.randint(0, 9, (4, 3), generator=generator)
        net(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return optimizer


def gathered(state, rank, world):
    """What the first ranks wrote, on all."""
    mine = written(state, rank, world) if rank < world else None
    everything = [None] * WORLD
    dist.all_gather_object(everything, mine)
    store = Store()
    store.take(everything[:world])
    return store


def values(state, optimizer_names=("exp_avg", "exp_avg_sq", "step")):
    """Every tensor of a net and its optimizer, whole, by name."""
    net, optimizer = state["net"], state["optimizer"]
    found = {name: whole(p) for name, p in net.named_parameters()}
    for name, p in net.named_parameters():
        for key in optimizer_names:
            found[f"{name} {key}"] = whole(optimizer.state[p][key])
    return found


def from_each_to_each(*, tell):
    """Train in one lay, write, and restore into nets of other lays that were never trained."""
    rank = join()
    pairs = [
        ("plain", "fsdp 4"), ("fsdp 4", "plain"), ("fsdp 3", "fsdp 2"), ("fsdp 4", "tp"), ("fsdp and tp", "fsdp 3"),
        ("hsdp", "fsdp and tp"), ("copies of tp", "hsdp"), ("fsdp 2", "copies of tp"), ("tp", "fsdp 4"),
    ]  # fmt: skip
    for source, into in pairs:
        world, make = LAYS[source]
        made = make(1)
        state, due = None, None
        if rank < world:
            state = {"net": made, "optimizer": train(made)}
            due = values(state)
        store = gathered(state, rank, world)
        shared = [due]
        dist.broadcast_object_list(shared, src=0)
        world, make = LAYS[into]
        net = make(2)
        if rank < world:
            live = {"net": net, "optimizer": torch.optim.AdamW(net.parameters(), lr=0.05, foreach=False)}
            read = store.fill(match(live, store.entries, rank=rank, world=world))
            got = values(live)
            assert got.keys() == shared[0].keys()
            for name, tensor in got.items():
                assert torch.equal(tensor, shared[0][name]), f"{source} to {into}: {name}"
            tell([source, into, sum(read.values())])
        dist.barrier()
    dist.destroy_process_group()


def old_fsdp(*, tell):
    """FSDP 1 writes its sharded state, as ShardedTensors or as DTensors, and takes it back."""
    rank = join()
    for mesh in (None, init_device_mesh("cpu", (WORLD,))):
        lay = {"device_mesh": mesh} if mesh is not None else {}
        nets = [
            FullyShardedDataParallel(seeded(seed), device_id=torch.device("cpu"), use_orig_params=True, **lay)
            for seed in (1, 2)
        ]
        for net in nets:
            FullyShardedDataParallel.set_state_dict_type(net, StateDictType.SHARDED_STATE_DICT)
        store = gathered({"net": nets[0]}, rank, WORLD)
        assert any(getattr(entry, "layout", None) for entry in store.entries)
        store.fill(match({"net": nets[1]}, store.entries, rank=rank, world=WORLD))
        due = dict(seeded(1).named_parameters())
        with FullyShardedDataParallel.summon_full_params(nets[1]):
            for name, tensor in nets[1].named_parameters():
                assert torch.equal(tensor, due[name.removeprefix("_fsdp_wrapped_module.")]), name
        tell("sharded" if mesh is None else "dtensor")
    dist.destroy_process_group()
