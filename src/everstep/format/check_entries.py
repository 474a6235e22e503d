"""The bounds of a list of entries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from everstep.format.check_layouts import check_layout
from everstep.format.dtypes import ITEM_BYTES
from everstep.format.entries import Alias, Container, Entry, Tensor
from everstep.format.faults import Faults
from everstep.format.limits import (
    MAX_DEPTH,
    MAX_ENTRIES,
    MAX_NDIM,
    MAX_PATH_CHARS,
    MAX_TENSOR_BYTES,
)
from everstep.format.own import OWN_TYPES
from everstep.format.paths import parent, path_fault

__all__ = ["check_entries"]


def check_entries(
    entries: Sequence[Entry], faults: Faults, *, own: bool = False, world: int | None = None
) -> dict[str, Entry]:
    """Each entry in bounds, each path once, each parent before its children, the root first.

    Returns the entries by path. An empty list is allowed. ``own``: the list is that of a compact index, in
    which what is above the rank's own containers is left out. ``world`` is the number of ranks of the save, where
    it is known. Raises `InvalidManifest`.
    """
    faults.count("entries", len(entries), MAX_ENTRIES)
    by_path: dict[str, Entry] = {}
    children: dict[str, int] = {}
    for n, entry in enumerate(entries):
        if entry.path:
            _check_path(entry.path, n, faults)
            if not (own and _begins(entry, children)):
                _check_parent(entry.path, by_path, children, n, faults)
        if entry.path in by_path:
            raise faults.fail(f"entries[{n}].path", f"{entry.path!r:.200} is there twice")
        by_path[entry.path] = entry
        if type(entry) is Tensor:
            _check_tensor(entry, n, faults, world)
        elif type(entry) is Container:
            children[entry.path] = 0
    for n, entry in enumerate(entries):
        if type(entry) is Alias and not (own and entry.of not in by_path):
            _check_alias(entry, by_path.get(entry.of), n, faults)
        elif type(entry) is Container:
            _check_container(entry, children[entry.path], n, faults)
    return by_path


def _begins(entry: Entry, children: Mapping[str, int]) -> bool:
    """Whether it is an outermost container of what is a rank's own."""
    return isinstance(entry, Container) and entry.type in OWN_TYPES and parent(entry.path) not in children


def _check_parent(
    path: str, by_path: dict[str, Entry], children: dict[str, int], n: int, faults: Faults
) -> None:
    above, _, last = path.rpartition("/")
    before = children.get(above)
    if before is None:
        raise faults.fail(f"entries[{n}].path", f"{path!r:.200} comes before the container it is in")
    container = by_path[above]
    if isinstance(container, Container) and container.type in ("list", "tuple") and last != str(before):
        raise faults.fail(f"entries[{n}].path", f"{path!r:.200} where item {before} of a list belongs")
    children[above] = before + 1


def _check_container(entry: Container, children: int, n: int, faults: Faults) -> None:
    declared = entry.length if entry.keys is None else len(entry.keys)
    if declared < 0:
        raise faults.fail(f"entries[{n}].length", f"{declared} is negative")
    if entry.type in ("dict", "list", "tuple") and declared != children:
        raise faults.fail(f"entries[{n}]", f"{declared} children declared, {children} in the list")


def _check_path(path: str, n: int, faults: Faults) -> None:
    if len(path) > MAX_PATH_CHARS:
        raise faults.fail(f"entries[{n}].path", f"{len(path)} characters, more than {MAX_PATH_CHARS}")
    fault = path_fault(path)
    if fault:
        raise faults.fail(f"entries[{n}].path", f"{path!r:.200} holds {fault}")
    if path.count("/") >= MAX_DEPTH:
        raise faults.fail(f"entries[{n}].path", f"nested more than {MAX_DEPTH} deep")


def _check_tensor(entry: Tensor, n: int, faults: Faults, world: int | None) -> None:
    size = ITEM_BYTES.get(entry.dtype)
    if size is None:
        raise faults.fail(f"entries[{n}].dtype", f"{entry.dtype!r:.80} is not known to this version")
    _check_shape(entry.shape, size, f"entries[{n}].shape", faults)
    if entry.layout is not None:
        check_layout(entry.layout, len(entry.shape), f"entries[{n}].layout", faults, world=world)


def _check_shape(shape: tuple[int, ...], size: int, field: str, faults: Faults) -> None:
    if len(shape) > MAX_NDIM:
        raise faults.fail(field, f"{len(shape)} dimensions, more than {MAX_NDIM}")
    for dim in shape:
        if not 0 <= dim <= MAX_TENSOR_BYTES:
            raise faults.fail(field, f"{dim} is not the size of a dimension")
    # zeros are left out: other libraries multiply the rest, and overflow
    if math.prod(dim for dim in shape if dim) * size > MAX_TENSOR_BYTES:
        raise faults.fail(field, f"more than {MAX_TENSOR_BYTES} bytes")


def _check_alias(entry: Alias, of: Entry | None, n: int, faults: Faults) -> None:
    if type(of) is not Tensor:
        raise faults.fail(f"entries[{n}].of", f"{entry.of!r:.200} is not a tensor in the list")
    if entry.shape is None:
        if entry.strides or entry.offset:
            raise faults.fail(f"entries[{n}].strides", "strides or an offset without a shape")
        return
    _check_shape(entry.shape, ITEM_BYTES[of.dtype], f"entries[{n}].shape", faults)
    if len(entry.strides) != len(entry.shape):
        raise faults.fail(f"entries[{n}].strides", f"{len(entry.strides)} for {len(entry.shape)} dimensions")
    elements = math.prod(of.shape)
    faults.count(f"entries[{n}].offset", entry.offset, elements)
    if min(entry.strides, default=0) < 0:
        raise faults.fail(f"entries[{n}].strides", f"{entry.strides} run backwards")
    if 0 in entry.shape:
        return
    steps = [(dim - 1) * stride for dim, stride in zip(entry.shape, entry.strides, strict=True)]
    last = entry.offset + sum(steps)
    if last >= elements:
        raise faults.fail(
            f"entries[{n}].offset", f"the view reaches element {last} of the {elements} of {entry.of!r:.200}"
        )
