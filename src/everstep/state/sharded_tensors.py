"""torch's older tensors on several ranks, ShardedTensor: what FSDP 1 gives as its sharded state."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Final

import torch

from everstep.format.box import Box
from everstep.format.entries import Layout
from everstep.format.layouts import make_layout, parts
from everstep.state.sharded import TorchSharded, Unfit
from everstep.state.torch_arrays import Lanes

if TYPE_CHECKING:
    from torch.distributed._shard.sharded_tensor.api import ShardedTensor

__all__ = ["as_sharded_tensor", "sharded_by_list"]

_HINT: Final = "give it as a DTensor: torch.distributed.tensor.distribute_tensor, or FSDP with a device mesh"


def as_sharded_tensor(value: torch.Tensor) -> ShardedTensor | None:
    """The tensor, if it is a ShardedTensor."""
    room = sys.modules.get("torch.distributed._shard.sharded_tensor")
    return value if room is not None and isinstance(value, room.ShardedTensor) else None


def sharded_by_list(value: ShardedTensor, rank: int, lanes: Lanes) -> TorchSharded | Unfit:
    """A ShardedTensor whose shards, which it lists, are the cells of a grid cut as torch.chunk cuts; or why not."""
    shape = tuple(value.size())
    cells: dict[Box, int] = {}
    for shard in value.metadata().shards_metadata:
        box = Box(tuple(shard.shard_offsets), tuple(shard.shard_sizes))
        owner = shard.placement.rank() if shard.placement is not None else None
        if owner is None:
            return "its shards do not tell their ranks", _HINT
        if box.elements:
            cells[box] = owner
    layout = _grid(shape, cells) if cells else make_layout(shape=(1,), ranks=[rank], placements=["replicate"])
    if layout is None:
        return "its shards are cut otherwise than torch.chunk cuts", _HINT
    here = {
        Box(tuple(shard.metadata.shard_offsets), tuple(shard.metadata.shard_sizes)): shard.tensor.detach()
        for shard in value.local_shards()
        if shard.tensor.numel()
    }
    due = parts(layout, shape, rank) if cells else ()
    if {part.box for part in due} != here.keys() or any(
        tuple(tensor.shape) != box.sizes for box, tensor in here.items()
    ):
        return f"rank {rank} has other shards than are listed", _HINT
    return TorchSharded(
        layout=layout,
        rank=rank,
        shape=shape,
        torch_dtype=value.dtype,
        held=[(part.box, here[part.box], part.coordinate) for part in due],
        lanes=lanes,
        name=("torch on ranks", str(id(value))),
    )


def _grid(shape: tuple[int, ...], cells: dict[Box, int]) -> Layout | None:
    """The mesh of the owners of cells, a dimension of it for each dimension of the tensor that is cut."""
    cuts: list[list[int]] = []
    for d, extent in enumerate(shape):
        starts = sorted({box.offsets[d] for box in cells})
        size = -(-extent // len(starts))
        if starts != list(range(0, extent, size or 1)):
            return None
        cuts.append(starts)
    found = _owners(shape, cuts, cells)
    mesh = [(d, len(starts)) for d, starts in enumerate(cuts) if len(starts) > 1]
    if found is None:
        return None
    return make_layout(
        shape=[size for _, size in mesh] or [1],
        ranks=found,
        placements=[f"shard:{d}" for d, _ in mesh] or ["replicate"],
    )


def _owners(shape: tuple[int, ...], cuts: Sequence[list[int]], cells: dict[Box, int]) -> list[int] | None:
    """Whose each cell is, row-major; None when one is missing or of another size."""
    if math.prod(len(starts) for starts in cuts) != len(cells):
        return None
    owners = []
    for at in product(*[range(len(starts)) for starts in cuts]):
        offsets = tuple(starts[n] for starts, n in zip(cuts, at, strict=True))
        stops = [[*starts[1:], extent][n] for starts, n, extent in zip(cuts, at, shape, strict=True)]
        box = Box(offsets, tuple(stop - start for start, stop in zip(offsets, stops, strict=True)))
        if box not in cells:
            return None
        owners.append(cells[box])
    return owners
