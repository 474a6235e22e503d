"""Device meshes of torch as layouts."""

from __future__ import annotations

from collections.abc import MutableMapping
from itertools import product
from typing import Any, Final

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.utils.weak import WeakIdKeyDictionary

from everstep.errors import UsageError
from everstep.format.entries import Layout
from everstep.format.layouts import make_layout

__all__ = ["layout_of", "slices"]

_Key = tuple[tuple[str, ...], tuple[int, ...], int, tuple[int, ...] | None]

_KNOWN: Final[MutableMapping[DeviceMesh, dict[_Key, Layout]]] = WeakIdKeyDictionary()
"""What was found for a mesh, while it lives."""


def layout_of(
    mesh: DeviceMesh,
    placements: tuple[str, ...],
    order: tuple[int, ...],
    *,
    rank: int,
    holders: tuple[int, ...] | None,
) -> Layout:
    """The layout of a tensor with these placements, one for each mesh dimension, that cut in this order.

    A mesh that is a slice of a larger one is extended: the other slices whose ranks are all among ``holders`` (None:
    all ranks are), those of the same state, are replicas, one row each of a first mesh dimension.

    Raises `UsageError` where torch counts this process under another number than ``rank``.
    """
    known = _KNOWN.setdefault(mesh, {})
    key = (placements, order, rank, holders)
    if key not in known:
        known[key] = _made(mesh, placements, order, rank, holders)
    return known[key]


def _made(
    mesh: DeviceMesh,
    placements: tuple[str, ...],
    order: tuple[int, ...],
    rank: int,
    holders: tuple[int, ...] | None,
) -> Layout:
    if mesh.get_rank() != rank:
        raise UsageError(
            f"torch.distributed has this process as rank {mesh.get_rank()}, and everstep as rank {rank}",
            hint="RANK and WORLD_SIZE must be those that torch.distributed was started with",
            rank=rank,
        )
    allowed = None if holders is None else frozenset(holders)
    rows = [row.flatten().tolist() for row in slices(mesh).permute(0, *[d + 1 for d in order])]
    inside = [row for row in rows if rank in row or allowed is None or allowed.issuperset(row)]
    names = [mesh.mesh_dim_names[d] for d in order] if mesh.mesh_dim_names else []
    shape = [mesh.shape[d] for d in order]
    placed = [placements[d] for d in order]
    if len(inside) > 1:
        shape, placed = [len(inside), *shape], ["replicate", *placed]
        names = ["replicas", *names] if names else []
    return make_layout(
        shape=shape, ranks=[each for row in inside for each in row], placements=placed, names=names
    )


def slices(mesh: DeviceMesh) -> torch.Tensor:
    """The ranks of all slices like this one of the mesh that it is cut from, one row each; of a whole mesh, itself.

    A mesh that is cut in a way that cannot be found out stands alone.
    """
    layout, ranks = getattr(mesh, "_layout", None), getattr(mesh, "_rank_map", None)
    if layout is not None and ranks is not None and hasattr(layout, "remap_to_tensor"):
        found: torch.Tensor = layout.remap_to_tensor(ranks)
        return found
    return _by_coordinates(mesh.mesh, _root(mesh).mesh)


def _root(mesh: DeviceMesh) -> DeviceMesh:
    """The mesh that this one is a slice of; older versions of torch keep it in a place of their own."""
    if hasattr(mesh, "_get_root_mesh"):
        found: DeviceMesh = mesh._get_root_mesh()  # noqa: SLF001 - torch has no public way from a slice to its mesh
        return found
    kept: Any = getattr(torch.distributed.device_mesh, "_mesh_resources", None)
    return kept.get_root_mesh(mesh) if hasattr(kept, "get_root_mesh") else mesh


def _by_coordinates(part: torch.Tensor, root: torch.Tensor) -> torch.Tensor:
    """All slices like ``part``, which goes through some dimensions of ``root`` and stands still in the others."""
    places = dict(zip(root.flatten().tolist(), product(*map(range, root.shape)), strict=True))
    ranks = part.flatten().tolist()
    if not all(rank in places for rank in ranks):
        return part[None]
    at = [places[rank] for rank in ranks]
    moving = [d for d in range(root.ndim) if len({c[d] for c in at}) > 1]
    still = [d for d in range(root.ndim) if d not in moving]
    if torch.Size([root.shape[d] for d in moving]).numel() != len(ranks):
        return part[None]
    rows = []
    for fixed in product(*[range(root.shape[d]) for d in still]):
        here = dict(zip(still, fixed, strict=True))
        rows.append([int(root[tuple(here.get(d, c[d]) for d in range(root.ndim))]) for c in at])
    return torch.tensor(rows).reshape(-1, *part.shape)
