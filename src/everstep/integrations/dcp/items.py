"""What one rank's plan of a DCP save tells it to write, as pieces with bytes and leaves with names."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType

from everstep.errors import SaveFailed, UnsupportedLeaf
from everstep.format.box import Box
from everstep.format.dtypes import ITEM_BYTES
from everstep.format.entries import Container, Tensor
from everstep.format.values import encode
from everstep.integrations.dcp.meshes import on_rank, with_layout, writer_of
from everstep.integrations.dcp.names import Keys, keys_of, path_of
from everstep.integrations.dcp.tree import Leaf
from everstep.integrations.dcp.values import from_file, object_leaf
from everstep.state.flat import Piece
from everstep.state.tensors import unfit
from everstep.state.torch_arrays import TorchBytes, dtype_name

__all__ = ["Items", "read_items"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """A rank's part: ``leaves`` that it describes, ``tensors`` whose bytes it has, the pieces, and bytes by item."""

    leaves: tuple[Leaf, ...]
    tensors: Mapping[str, Tensor]
    pieces: tuple[Piece, ...]
    sizes: tuple[int, ...]


def read_items(
    plan: SavePlan, planner: SavePlanner, *, ranks: Mapping[int, int], own: int, apart: bool
) -> Items:
    """Go through the plan's items; tensors are asked for when their bytes are copied.

    A tensor is described by the rank that has its first element, an object by the one that writes it.
    ``ranks`` are the checkpoint's ranks by global rank, ``own`` is this one. ``apart``: the plan is of all that
    this rank has; then of a DTensor's replicas the lowest rank writes, and all else is filed as the rank's own.
    Raises `UnsupportedLeaf`.
    """
    mappings = plan.planner_data if plan.planner_data is not None else getattr(planner, "mappings", None)
    state = getattr(planner, "state_dict", {})
    leaves: list[Leaf] = []
    tensors: dict[str, Tensor] = {}
    pieces: list[Piece] = []
    sizes: list[int] = []
    for item in plan.items:
        keys = keys_of(item.index.fqn, mappings)
        if item.type == WriteItemType.BYTE_IO:
            leaf, parts = object_leaf((*keys, own) if apart else keys, _object(item, planner))
            if apart:
                leaf = _own(leaf, keys, own)
            else:
                leaf = replace(leaf, entries=tuple(on_rank(entry, own, len(ranks)) for entry in leaf.entries))
            leaves.append(leaf)
            pieces += parts
            tensors.update((entry.path, entry) for entry in leaf.entries if isinstance(entry, Tensor))
            sizes.append(sum(part.nbytes for part in parts))
            continue
        live = state.get(item.index.fqn) if isinstance(state, Mapping) else None
        if apart and item.type == WriteItemType.TENSOR:
            entry, piece = _tensor(item, planner, (*keys, own))
            tensors[entry.path] = entry
            leaves.append(_own(Leaf(keys=keys, entries=(entry,)), keys, own))
            pieces.append(piece)
            sizes.append(piece.nbytes)
            continue
        entry, piece = _tensor(item, planner, keys)
        if apart and own != writer_of(entry, live, ranks, piece.box, own):
            sizes.append(0)
            continue
        if entry.path not in tensors:
            if item.type == WriteItemType.TENSOR:  # all of it, and from one rank
                entry = on_rank(entry, own, len(ranks))
            tensors[entry.path] = with_layout(entry, live, ranks, piece.box)
        if not any(piece.box.offsets) and (piece.box.elements or 0 in entry.shape):
            leaves.append(Leaf(keys=keys, entries=(tensors[entry.path],)))
        if piece.box.elements or 0 in entry.shape:
            pieces.append(piece)
        sizes.append(piece.nbytes)
    return Items(leaves=tuple(leaves), tensors=tensors, pieces=tuple(pieces), sizes=tuple(sizes))


def _own(leaf: Leaf, keys: Keys, rank: int) -> Leaf:
    """The leaf as one that each rank has its own of."""
    above = Container(path=path_of(keys), type="per_rank", keys=[encode(rank)])
    return Leaf(keys=keys, entries=(above, *leaf.entries))


def _object(item: WriteItem, planner: SavePlanner) -> object:
    """The object itself where the planner is DCP's own in this; else what it made of it."""
    name = item.index.fqn
    kind: Any = type(planner)
    if (
        isinstance(planner, DefaultSavePlanner)
        and kind.resolve_data is DefaultSavePlanner.resolve_data
        and kind.transform_object is DefaultSavePlanner.transform_object
    ):
        found = planner.lookup_object(item.index)
        return found.getvalue() if isinstance(found, io.BytesIO) else found
    made = planner.resolve_data(item)
    return from_file(name, made) if isinstance(made, io.BytesIO) else made


def _tensor(item: WriteItem, planner: SavePlanner, keys: Keys) -> tuple[Tensor, Piece]:
    told = item.tensor_data
    if told is None:
        raise SaveFailed(f"{item.index.fqn}: the plan does not say which part of the tensor to write")
    dtype, shape = dtype_name(told.properties.dtype), tuple(told.size)
    box = Box(tuple(told.chunk.offsets), tuple(told.chunk.sizes))
    if dtype not in ITEM_BYTES or told.properties.dtype in (torch.quint8, torch.qint8, torch.qint32):
        raise UnsupportedLeaf(
            f"{item.index.fqn}: its element type {dtype} cannot be stored through DCP",
            hint="store it in another type",
            path=item.index.fqn,
        )
    if not box.within(shape):
        raise SaveFailed(f"{item.index.fqn}: the plan's part {box} is outside of {shape}")
    path = path_of(keys)
    piece = Piece(
        path=path,
        dtype=dtype,
        box=box,
        nbytes=math.prod(box.sizes) * ITEM_BYTES[dtype],
        source=_Resolved(item=item, planner=planner, dtype=told.properties.dtype, sizes=box.sizes),
    )
    return Tensor(path=path, dtype=dtype, shape=shape, framework="torch"), piece


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resolved:
    """A `Source` whose tensor the planner gives when it is asked: it may make it only then."""

    item: WriteItem
    planner: SavePlanner
    dtype: torch.dtype
    sizes: Sequence[int]

    def view(self) -> memoryview | None:
        return TorchBytes(self._tensor()).view()

    def copy_to(self, into: memoryview) -> None:
        TorchBytes(self._tensor()).copy_to(into)

    def _tensor(self) -> torch.Tensor:
        name = self.item.index.fqn
        found: Any = self.planner.resolve_data(self.item)
        if not isinstance(found, torch.Tensor):
            raise SaveFailed(f"{name}: the planner gave a {type(found).__name__} for a tensor", path=name)
        tensor = found.detach()
        why = unfit(tensor)
        if why:
            raise UnsupportedLeaf(f"{name} cannot be stored: {why[0]}", hint=why[1], path=name)
        if tuple(tensor.shape) != tuple(self.sizes) or tensor.dtype != self.dtype:
            raise SaveFailed(
                f"{name}: the plan tells {tuple(self.sizes)} of {self.dtype}, the planner gave "
                f"{tuple(tensor.shape)} of {tensor.dtype}",
                hint="a planner that changes tensors must change the plan's properties too",
                path=name,
            )
        return tensor
