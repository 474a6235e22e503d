"""What a sharding of jax says of an array's boxes, in the words of a layout: a mesh of processes, and placements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import jax
import numpy as np

from everstep.format.box import Box
from everstep.format.entries import Layout
from everstep.format.layouts import make_layout, parts

__all__ = ["box_of", "layout_of", "process_of"]

_Ranks = np.ndarray[Any, np.dtype[np.int64]]
_Digits = list[tuple[int, int]]
"""Sizes and steps: a number written in digits of these sizes stands for the sum of digit times step."""

_REPLICATE: Final = "replicate"


def process_of(device: jax.Device) -> int:
    """The process that a device belongs to: its rank."""
    return int(device.process_index)


def box_of(index: tuple[slice | int, ...], shape: tuple[int, ...]) -> Box:
    """An index of jax as a box; a number, as the arrays of ``jax.pmap`` have it, is one element of its dimension."""
    spans = [
        at.indices(extent)[:2] if isinstance(at, slice) else (at, at + 1)
        for at, extent in zip(index, shape, strict=True)
    ]
    return Box(tuple([start for start, _ in spans]), tuple([stop - start for start, stop in spans]))


@lru_cache(maxsize=4096)
def layout_of(
    sharding: jax.sharding.Sharding,
    shape: tuple[int, ...],
    rank_of: Callable[[jax.Device], int] = process_of,
) -> Layout | None:
    """The layout of an array of global ``shape``, the same on every process; None where no layout says it.

    Of a `NamedSharding` it follows from mesh and spec, and is held against the boxes of the devices that are here.
    Of others it is found from the boxes of all devices, which must be a regular grid.
    """
    if isinstance(sharding, jax.sharding.NamedSharding):
        found = _named(sharding, rank_of)
        if found is not None and _agrees(found, sharding, shape, rank_of):
            return found
    return _gridded(sharding, shape, rank_of)


def _named(sharding: jax.sharding.NamedSharding, rank_of: Callable[[jax.Device], int]) -> Layout | None:
    """Mesh axes that cut one dimension must come in the order in which they cut it; then the mesh's own is kept."""
    axes: list[str] = list(sharding.mesh.axis_names)
    cuts: dict[str, int] = {}
    for dim, named in enumerate(sharding.spec):
        for axis in (named,) if isinstance(named, str) else named if isinstance(named, tuple) else ():
            cuts[axis] = dim
    order = sorted(cuts, key=axes.index)
    if sorted(order, key=cuts.__getitem__) != list(cuts):
        order = list(cuts)
    order += [axis for axis in axes if axis not in cuts]
    if [axis for axis in axes if axis in cuts] == order[: len(cuts)]:
        order = axes
    ranks = _ranks(sharding.mesh.devices, rank_of).transpose([axes.index(axis) for axis in order])
    placements = [f"shard:{cuts[axis]}" if axis in cuts else _REPLICATE for axis in order]
    return _compact(ranks, placements, [str(axis) for axis in order])


def _ranks(devices: Any, rank_of: Callable[[jax.Device], int]) -> _Ranks:
    return np.array([rank_of(device) for device in devices.flat], np.int64).reshape(devices.shape)


def _compact(ranks: _Ranks, placements: list[str], names: list[str]) -> Layout:
    """The layout of a mesh; an axis that runs over the devices of processes becomes two, so that steps describe it.

    Else a mesh of thousands of devices would be listed in each entry.
    """
    digits = _axis_digits(ranks)
    if digits is not None:
        split = [
            (size, step, placement, name)
            for each, placement, name in zip(digits, placements, names, strict=True)
            for size, step, name in _numbered(each, name)
            if step or placement != _REPLICATE
        ]
        flat = np.array([ranks.flat[0]])
        for size, step, _, _ in split:
            flat = np.add.outer(flat, np.arange(size) * step).reshape(-1)
        if split:
            return make_layout(
                shape=[size for size, *_ in split],
                ranks=flat.tolist(),
                placements=[placement for _, _, placement, _ in split],
                names=[name for *_, name in split],
            )
        return make_layout(shape=(1,), ranks=flat.tolist(), placements=(_REPLICATE,))
    return make_layout(
        shape=ranks.shape, ranks=ranks.reshape(-1).tolist(), placements=placements, names=names
    )


def _numbered(digits: _Digits, name: str) -> list[tuple[int, int, str]]:
    """Digits with names: that of the axis, from the second on with a number."""
    return [(size, step, f"{name}.{n}" if n else name) for n, (size, step) in enumerate(digits)]


def _axis_digits(ranks: _Ranks) -> list[_Digits] | None:
    """The digits of each axis, where each adds to the rank what it adds alone, in steps forward."""
    first = int(ranks.flat[0])
    total = np.zeros(ranks.shape, np.int64) + first
    found = []
    for axis, size in enumerate(ranks.shape):
        along = ranks[tuple(slice(None) if d == axis else 0 for d in range(ranks.ndim))] - first
        total += along.reshape([size if d == axis else 1 for d in range(ranks.ndim)])
        digits = _digits(along.tolist())
        if digits is None:
            return None
        found.append(digits)
    return found if (total == ranks).all() else None


def _digits(along: Sequence[int]) -> _Digits | None:
    """The digits of a sequence that begins with 0, the first counting most; None when it is not made so."""
    if len(along) == 1:
        return []
    step = along[1]
    if step < 0:
        return None
    run = next((n for n, value in enumerate(along) if value != n * step), len(along))
    for size in range(run, 1, -1):
        outer = along[::size]
        if len(along) % size == 0 and all(
            value == outer[n // size] + n % size * step for n, value in enumerate(along)
        ):
            before = _digits(outer)
            if before is not None:
                return [*before, (size, step)]
    return None


def _agrees(
    layout: Layout,
    sharding: jax.sharding.Sharding,
    shape: tuple[int, ...],
    rank_of: Callable[[jax.Device], int],
) -> bool:
    """Whether the layout gives the ranks whose devices are here just the boxes that jax gives them."""
    here: dict[int, set[Box]] = {}
    for device, index in sharding.addressable_devices_indices_map(shape).items():
        box = box_of(index or (), shape)
        here.setdefault(rank_of(device), set()).update([box] if box.elements else [])
    return all({part.box for part in parts(layout, shape, rank)} == boxes for rank, boxes in here.items())


def _gridded(
    sharding: jax.sharding.Sharding, shape: tuple[int, ...], rank_of: Callable[[jax.Device], int]
) -> Layout | None:
    """The layout whose mesh is the grid of boxes, and one dimension more for the ranks that share a box."""
    cells: dict[Box, set[int]] = {}
    for device, index in sharding.devices_indices_map(shape).items():
        cells.setdefault(box_of(index or (), shape), set()).add(rank_of(device))
    counts = [len({box.offsets[dim] for box in cells}) for dim in range(len(shape))]
    deep = max(map(len, cells.values()))
    if len(cells) != math.prod(counts):
        return None
    listed = []
    for box in sorted(cells):
        ranks = sorted(cells[box])
        listed += [*ranks, *[ranks[0]] * (deep - len(ranks))]  # fewer ranks: one stands there several times
    mesh = [count for count in counts if count > 1] + ([deep] if deep > 1 else [])
    placements = [f"shard:{dim}" for dim, count in enumerate(counts) if count > 1]
    if deep > 1 or not mesh:
        mesh, placements = mesh or [1], [*placements, _REPLICATE]
    layout = make_layout(shape=mesh, ranks=listed, placements=placements)
    given = {box for rank in set(listed) for box in (part.box for part in parts(layout, shape, rank))}
    return layout if given == {box for box in cells if box.elements} else None
