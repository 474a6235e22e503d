"""torch tensors that lie on several ranks: DTensors, and what they have in common with others."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from everstep.format.box import Box
from everstep.format.entries import Layout
from everstep.format.layouts import coordinates, local_shape, parts, sharers, shares
from everstep.format.limits import MAX_SHARES
from everstep.state.memory import Block
from everstep.state.sharing import Extent, row_major
from everstep.state.torch_arrays import Lanes, TorchBytes, dtype_name

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

__all__ = ["TorchSharded", "Unfit", "as_dtensor", "fresh_like", "local_part", "sharded"]

Unfit = tuple[str, str]
"""Why a tensor cannot be saved or filled, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchSharded:
    """A live tensor of which this rank has boxes, each with its elements and the mesh coordinate it is of.

    ``name`` tells it from other tensors, and ties it to the same ones on all ranks.
    """

    layout: Layout
    rank: int
    shape: tuple[int, ...]
    torch_dtype: torch.dtype
    held: Sequence[tuple[Box, torch.Tensor, int]]
    name: tuple[str, ...]
    lanes: Lanes
    marks: Mapping[str, Any] = field(default_factory=dict)

    @property
    def framework(self) -> str:
        """Whose it is."""
        return "torch"

    @property
    def dtype(self) -> str:
        """Its element type."""
        return dtype_name(self.torch_dtype)

    @property
    def extra(self) -> Mapping[str, Any]:
        """Whether it is a parameter."""
        return self.marks

    @property
    def extent(self) -> Extent:
        """A place of its own; a rank that has no element of it has no address to tell by."""
        return Extent(space=self.name, address=0, item=1, shape=self.shape, strides=row_major(self.shape))

    def blocks(self) -> Sequence[Block]:
        """The boxes that are here."""
        return [
            Block(
                box=box,
                part=TorchBytes(tensor, self.lanes),
                replicas=sharers(self.layout, self.rank, coordinate),
            )
            for box, tensor, coordinate in self.held
        ]


def as_dtensor(value: torch.Tensor) -> DTensor | None:
    """The tensor, if it is a DTensor; their part of torch is slow to import, and seldom needed."""
    if type(value) is torch.nn.Parameter or type(value) is torch.Tensor:
        return None
    room = sys.modules.get("torch.distributed.tensor")
    return value if room is not None and isinstance(value, room.DTensor) else None


def local_part(value: DTensor) -> torch.Tensor:
    """What this rank has of it; without elements where it has none."""
    local = value._local_tensor  # noqa: SLF001 - to_local() is a step of autograd, and costs more than all else here
    if type(local) is not torch.Tensor and hasattr(local, "wait"):  # a collective gives it, and may still run
        local = local.wait()
    found: torch.Tensor = local.detach() if local.requires_grad else local
    return found


def sharded(
    value: DTensor,
    local: torch.Tensor,
    *,
    rank: int,
    holders: tuple[int, ...] | None,
    lanes: Lanes,
    marks: Mapping[str, Any],
) -> TorchSharded | Unfit:
    """A DTensor on several ranks, of which this one has ``local``; or why it cannot be taken apart.

    ``holders`` are the ranks that hold the same state; None: all.
    """
    from everstep.state.meshes import layout_of  # noqa: PLC0415 - slow to import, and seldom needed

    placements = _texts(tuple(value.placements))
    if isinstance(placements, str):
        return placements, "redistribute it to Shard and Replicate placements first"
    layout = layout_of(value.device_mesh, placements, _order(value), rank=rank, holders=holders)
    if shares(layout) > MAX_SHARES:
        return f"it is cut into more than {MAX_SHARES} parts", "redistribute it to larger ones first"
    shape = tuple(value.shape)
    here = coordinates(layout, rank)
    due = local_shape(layout, shape, here[0]) if here else None
    if local.numel() if due is None else tuple(local.shape) != due:
        return (
            f"rank {rank} has a part of shape {list(local.shape)}, and its placements give it {due and list(due)}",
            "distribute_tensor cuts as torch.chunk does; give DTensor.from_local parts that are cut so",
        )
    return TorchSharded(
        layout=layout,
        rank=rank,
        shape=shape,
        torch_dtype=local.dtype,
        held=[
            (part.box, _cut(local, part.at, part.box.sizes), part.coordinate)
            for part in parts(layout, shape, rank)
        ],
        lanes=lanes,
        marks=marks,
        name=("torch on ranks", *_memory(local), f"{shape}", _layout_text(layout)),
    )


def fresh_like(param: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A new tensor without values that lies as ``param`` does: a DTensor with its mesh and placements for one."""
    with torch.no_grad():
        return torch.empty_like(param, dtype=dtype, requires_grad=False)


def _memory(local: torch.Tensor) -> tuple[str, ...]:
    """What tells a part from others, elements or not: its storage, not where that is."""
    storage = local.untyped_storage()._cdata  # noqa: SLF001 - an empty storage has no address
    return (str(storage), f"{local.storage_offset()} {local.shape} {local.stride()} {local.dtype}")


def _cut(local: torch.Tensor, at: tuple[int, ...], sizes: tuple[int, ...]) -> torch.Tensor:
    if sizes == tuple(local.shape):
        return local
    return local[tuple(slice(start, start + size) for start, size in zip(at, sizes, strict=True))]


@lru_cache(maxsize=256)
def _texts(placements: tuple[Any, ...]) -> tuple[str, ...] | str:
    """The format's words for placements; or what is wrong with one."""
    found = []
    for placement in placements:
        name = type(placement).__name__
        if placement.is_partial():
            return f"its placement is {placement}: what ranks have must be reduced before it is a value"
        if placement.is_replicate():
            found.append("replicate")
        elif name == "_StridedShard" and int(placement.split_factor) > 1:
            found.append(f"strided:{placement.dim}:{int(placement.split_factor)}")
        elif name in ("Shard", "_StridedShard"):
            found.append(f"shard:{placement.dim}")
        else:
            return f"its placement is {placement}, which the format has no word for"
    return tuple(found)


def _order(value: DTensor) -> tuple[int, ...]:
    """The mesh dimensions in the order in which they cut; newer versions of torch have others than left to right."""
    order = getattr(value._spec, "shard_order", None) or ()  # noqa: SLF001 - torch tells it nowhere else
    return _merged(value.device_mesh.ndim, tuple(tuple(entry.mesh_dims) for entry in order))


@lru_cache(maxsize=256)
def _merged(ndim: int, order: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    if all(list(dims) == sorted(dims) for dims in order):
        return tuple(range(ndim))
    first = [d for dims in order for d in dims]
    return (*first, *(d for d in range(ndim) if d not in first))


@lru_cache(maxsize=256)
def _layout_text(layout: Layout) -> str:
    return repr(layout)
