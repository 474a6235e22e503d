"""Random tensors on random meshes in random placements; forked by `tests.zygote`."""

import random

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

import everstep as es
from tests.checkpointer.rank_models import start

__all__ = ["moved", "restored", "wholes"]

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.uint8, torch.complex64)


def wholes(seed):
    """Tensors by name: up to three dimensions of 0 to 9 elements, of any type; they follow from the seed."""
    chosen = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for n in range(6):
        shape = [chosen.choice([0, 1, 2, 3, 4, 5, 7, 9]) for _ in range(chosen.randint(0, 3))]
        whole = torch.randint(-100, 100, shape, generator=generator)
        found[f"t{n}"] = whole.to(chosen.choice(DTYPES))
    return found


def meshes():
    """One of each shape for the ranks of this process group; slices of larger ones, other orders, some of the ranks."""
    world = dist.get_world_size()
    shapes = {1: [(1,)], 2: [(2,), (1, 2)], 3: [(3,), (3, 1)], 4: [(4,), (2, 2), (2, 1, 2)], 8: [(2, 2, 2)]}
    made = [init_device_mesh("cpu", shape, mesh_dim_names="abc"[: len(shape)]) for shape in shapes[world]]
    turned = torch.arange(world).flip(0)
    others = [DeviceMesh("cpu", turned), DeviceMesh("cpu", turned.reshape(-1, 1))]
    if world > 2:
        others.append(DeviceMesh("cpu", [2, 0]))
    if world == 4:
        others.append(DeviceMesh("cpu", [[3, 1], [0, 2]]))
    return made + [mesh["b"] for mesh in made if mesh.ndim == 2] + others


def placed(ndim, mesh, chosen):
    """Placements of a tensor of so many dimensions."""
    found = [
        Shard(chosen.randrange(ndim)) if ndim and chosen.random() < 0.75 else Replicate()
        for _ in range(mesh.ndim)
    ]
    if mesh.ndim == 2 and ndim and chosen.random() < 0.4:
        d = chosen.randrange(ndim)
        found = [_StridedShard(d, split_factor=mesh.shape[1]), Shard(d)]
    return found


def spread(found, mesh_of, chosen):
    """Each tensor as a DTensor, or plain."""
    state = {}
    for name, whole in found.items():
        if chosen.random() < 0.15:
            state[name] = whole.clone()
            continue
        mesh = chosen.choice(mesh_of)
        state[name] = distribute_tensor(
            whole.clone(), mesh, placed(whole.ndim, mesh, chosen), src_data_rank=None
        )
    return state


def blank(found):
    """Other numbers."""
    return {name: torch.full_like(whole, 1) for name, whole in found.items()}


def wrong(state, found):
    """What this rank has that is not what was saved, as torch cuts that; and its layout.

    By parts: of a mesh whose ranks are in another order torch's `full_tensor` gives them in another order.
    """
    problems = []
    for name, here in state.items():
        due = found[name]
        if isinstance(here, DTensor):
            mesh, placements = here.device_mesh, here.placements
            due = distribute_tensor(due.clone(), mesh, placements, src_data_rank=None).to_local()
            if not torch.equal(here.to_local(), due):
                problems.append(f"{name} {list(found[name].shape)} {placements} on {mesh.mesh.tolist()}")
        elif not torch.equal(here, due):
            problems.append(name)
    return problems


def moved(rendezvous, folder, seeds, *, tell):
    """Saves each seed's tensors as a step, which change meanwhile, and restores it in another layout; tells what is wrong."""
    start(rendezvous)
    mesh_of = meshes()
    with es.Checkpointer(folder, "r") as ckpt:
        for step, seed in enumerate(seeds, 1):
            found, chosen = wholes(seed), random.Random(seed + 1)
            state = spread(found, mesh_of, chosen)
            ckpt.save(step, state)
            for tensor in state.values():  # training goes on
                (tensor.to_local() if isinstance(tensor, DTensor) else tensor).fill_(1)
        for step, seed in enumerate(seeds, 1):
            found, chosen = wholes(seed), random.Random(seed + 2)
            state = spread(blank(found), mesh_of, chosen)
            ckpt.restore(state, step=step)
            if problems := wrong(state, found):
                tell([seed, problems])
    tell("done")


def restored(rendezvous, folder, seeds, *, tell):
    """Restores each seed's tensors in a layout of this process group; tells what is wrong."""
    start(rendezvous)
    mesh_of = meshes()
    with es.Checkpointer(folder, "r") as ckpt:
        for step, seed in enumerate(seeds, 1):
            found, chosen = wholes(seed), random.Random(seed + 3)
            state = spread(blank(found), mesh_of, chosen)
            ckpt.restore(state, step=step)
            if problems := wrong(state, found):
                tell([seed, problems])
    tell("done")
