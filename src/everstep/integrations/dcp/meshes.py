"""Device meshes and placements of DTensors as layouts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec.structs import replace
from torch.distributed import is_available

from everstep.format.box import Box
from everstep.format.entries import Entry, Tensor
from everstep.format.layouts import make_layout, parts, sharers

__all__ = ["on_rank", "with_layout", "writer_of"]

E = TypeVar("E", bound=Entry)


def on_rank(entry: E, rank: int, world: int) -> E:
    """The entry, a tensor's saying that it is whole on one rank: DCP chooses which of the replicas is written."""
    if world == 1 or not isinstance(entry, Tensor):
        return entry
    whole = make_layout(shape=(1,), ranks=(rank,), placements=("replicate",))
    return replace(entry, layout=whole)


def with_layout(entry: Tensor, live: Any, ranks: Mapping[int, int], box: Box) -> Tensor:
    """The entry with the layout of the live DTensor; as it is for what is none.

    ``ranks`` are the checkpoint's ranks by global rank. Left out too where the mesh has ranks that do not take
    part, and where the part that this rank writes, ``box``, is not what the layout gives: a reader would
    look in the wrong place.
    """
    if not is_available():
        return entry
    from torch.distributed.tensor import DTensor  # noqa: PLC0415 - there only with torch.distributed

    if not isinstance(live, DTensor):
        return entry
    mesh = live.device_mesh
    members = [ranks.get(int(rank)) for rank in mesh.mesh.flatten().tolist()]
    placements = [_placement(placement) for placement in live.placements]
    known = [member for member in members if member is not None]
    words = [word for word in placements if word is not None]
    if len(known) != len(members) or len(words) != len(placements):
        return entry
    layout = make_layout(
        shape=tuple(mesh.mesh.shape), ranks=known, placements=words, names=mesh.mesh_dim_names or ()
    )
    own = ranks.get(mesh.get_rank())
    held = [] if own is None else [part.box for part in parts(layout, entry.shape, own)]
    fits = box in held or not box.elements
    everywhere = set(words) == {"replicate"} and set(known) == set(ranks.values())
    return replace(entry, layout=layout) if fits and not everywhere else entry


def writer_of(entry: Tensor, live: Any, ranks: Mapping[int, int], box: Box, own: int) -> int:
    """Of the ranks that have this part of a DTensor the lowest; of what is none this one."""
    layout = with_layout(entry, live, ranks, box).layout
    if layout is not None:
        return min(sharers(layout, own), default=own)
    kind = type(live).__name__
    return min(ranks.values()) if kind == "DTensor" and box == Box.whole(entry.shape) else own


def _placement(placement: Any) -> str | None:
    """The word for a placement; None where there is none."""
    factor = getattr(placement, "split_factor", None)
    if factor is not None:
        return f"strided:{placement.dim}:{factor}"
    if placement.is_shard():
        return f"shard:{placement.dim}"
    return "replicate" if placement.is_replicate() else None
