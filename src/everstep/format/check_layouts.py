"""The bounds of a layout."""

from __future__ import annotations

import math
import re
from typing import Final

from everstep.format.entries import Layout
from everstep.format.faults import Faults
from everstep.format.layouts import last_rank, shares
from everstep.format.limits import MAX_NDIM, MAX_RANKS, MAX_SHARES

__all__ = ["check_layout"]

_SHARD: Final = re.compile(r"shard:(0|[1-9][0-9]?)")
_STRIDED: Final = re.compile(r"strided:(0|[1-9][0-9]?):[1-9][0-9]{0,7}")


def check_layout(layout: Layout, ndim: int, field: str, faults: Faults, *, world: int | None = None) -> None:
    """Each number in bounds and in agreement with the others, so that `layouts` can compute with it.

    ``ndim`` is that of the tensor, ``world`` the number of ranks of the save, where it is known.
    Raises `InvalidManifest`.
    """
    dims = len(layout.shape)
    faults.count(f"{field}.mesh", dims, MAX_NDIM, 1)
    for size in layout.shape:
        faults.count(f"{field}.mesh", size, MAX_RANKS, 1)
    faults.count(f"{field}.mesh", math.prod(layout.shape), MAX_RANKS)
    if layout.names and len(layout.names) != dims:
        raise faults.fail(f"{field}.names", f"{len(layout.names)} names for {dims} dimensions")
    if len(layout.placements) != dims:
        raise faults.fail(f"{field}.placements", f"{len(layout.placements)} for {dims} dimensions")
    for placement in layout.placements:
        match = _SHARD.fullmatch(placement) or _STRIDED.fullmatch(placement)
        if placement != "replicate" and not (match and int(match[1]) < ndim):
            raise faults.fail(f"{field}.placements", f"{placement!r:.40} for a tensor of {ndim} dimensions")
    if shares(layout) > MAX_SHARES:
        raise faults.fail(f"{field}.placements", f"they cut into more than {MAX_SHARES} parts")
    _check_ranks(layout, field, faults, MAX_RANKS if world is None else world)


def _check_ranks(layout: Layout, field: str, faults: Faults, world: int) -> None:
    if layout.ranks:
        if len(layout.ranks) != math.prod(layout.shape):
            raise faults.fail(f"{field}.ranks", f"{len(layout.ranks)} in a mesh of {math.prod(layout.shape)}")
        if layout.start or layout.strides:
            raise faults.fail(f"{field}.ranks", "beside a start or strides")
        if min(layout.ranks) < 0:
            raise faults.fail(f"{field}.ranks", f"{min(layout.ranks)} is negative")
    else:
        faults.count(f"{field}.start", layout.start, MAX_RANKS - 1)
        if layout.strides and len(layout.strides) != len(layout.shape):
            raise faults.fail(f"{field}.strides", f"{len(layout.strides)} for {len(layout.shape)} dimensions")
        for stride in layout.strides:
            faults.count(f"{field}.strides", stride, MAX_RANKS)
    last = last_rank(layout)
    if last >= world:
        raise faults.fail(f"{field}.ranks", f"rank {last} is in it, and there are {world} ranks")
