"""What ranks do in the tests: run by `Pool` on each of them."""

import math
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

from everstep.integrations.dcp import StorageReader, StorageWriter

warnings.filterwarnings("ignore", category=UserWarning)

SHAPES = {"even": (8, 12), "uneven": (7, 5), "short": (3, 2), "row": (9,), "deep": (4, 3, 5)}
LAYOUTS = {
    "rows": ((4,), (Shard(0),)),
    "columns": ((4,), (Shard(1),)),
    "everywhere": ((4,), (Replicate(),)),
    "grid": ((2, 2), (Shard(0), Shard(1))),
    "turned": ((2, 2), (Shard(1), Shard(0))),
    "hybrid": ((2, 2), (Replicate(), Shard(0))),
    "twice": ((2, 2), (Shard(0), Shard(0))),
    "strided": ((2, 2), (_StridedShard(0, split_factor=2), Shard(0))),
    "pair": ((2,), (Shard(0),)),
    "three": ((3,), (Shard(0),)),
}
_groups: dict[int, dist.ProcessGroup] = {}
_meshes: dict[tuple[int, ...], DeviceMesh] = {}


def group_of(size: int):
    """The first ``size`` ranks; the same group each time."""
    for each in (2, 3):
        if each not in _groups:
            _groups[each] = dist.new_group(list(range(each)))
    return None if size == dist.get_world_size() else _groups[size]


def mesh_of(shape):
    """A mesh of this shape over the first ranks."""
    for each in ((4,), (2, 2), (2,), (3,)):
        if each not in _meshes:
            _meshes[each] = DeviceMesh("cpu", torch.arange(math.prod(each)).reshape(each))
    return _meshes[tuple(shape)]


def full(name, dtype=torch.float32):
    """The whole tensor of a name."""
    shape = SHAPES[name]
    return torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape).add(len(name)).to(dtype)


def state_of(layout, *, filled):
    """Each shape in a layout, and what is no DTensor beside it."""
    shape, placements = LAYOUTS[layout]
    found = {}
    for name, size in SHAPES.items():
        fits = [p if not p.is_shard() or p.dim < len(size) else Shard(0) for p in placements]
        whole = full(name) if filled else torch.zeros(size)
        found[name] = distribute_tensor(whole, mesh_of(shape), fits, src_data_rank=None)
    return {
        "model": found,
        "plain": full("even") if filled else torch.zeros(8, 12),
        "step": 7 if filled else 0,
        "group": [{"lr": 0.5 if filled else 0.0, "betas": (0.9, 0.99) if filled else None}],
    }


def same(state) -> bool:
    """Whether all of a state is what `state_of` fills it with."""
    for name, tensor in state["model"].items():
        if not torch.equal(tensor.full_tensor(), full(name)):
            raise AssertionError(f"{name}: {tensor}")
    assert torch.equal(state["plain"], full("even"))
    assert state["step"] == 7
    assert state["group"] == [{"lr": 0.5, "betas": (0.9, 0.99)}]
    return True


def takes_part(layout) -> bool:
    """Whether this rank is in the layout's mesh."""
    group_of(2), mesh_of((4,))
    return dist.get_rank() < math.prod(LAYOUTS[layout][0])


def save(store, run, layout, step):
    """Save a state in a layout, by the ranks of its mesh."""
    if takes_part(layout):
        group = group_of(math.prod(LAYOUTS[layout][0]))
        dcp.save(
            state_of(layout, filled=True), storage_writer=StorageWriter(store, run, step), process_group=group
        )
    dist.barrier()


def load(store, run, layout):
    """Load it into a layout."""
    found = None
    if takes_part(layout):
        group = group_of(math.prod(LAYOUTS[layout][0]))
        state = state_of(layout, filled=False)
        dcp.load(state, storage_reader=StorageReader(store, run), process_group=group)
        found = same(state)
    dist.barrier()
    return found


def reshard(store, saved, loaded):
    """Save in one layout, load in others."""
    save(store, saved, saved, 1)
    return [load(store, saved, layout) for layout in loaded]
