"""A checkpoint's entries as DCP's metadata: which names there are, and what each leads to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.distributed.checkpoint._traverse import traverse_state_dict
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

from everstep.errors import RestoreError
from everstep.format.entries import Entry, Tensor
from everstep.format.values import decode
from everstep.integrations.dcp.names import Keys, name_of
from everstep.integrations.dcp.tree import FLAT
from everstep.state.saved import Saved, tree
from everstep.state.torch_arrays import dtype_of

__all__ = ["Found", "find_leaves", "metadata_of"]

_MAPPINGS: Final = frozenset(
    {
        "dict", "OrderedDict", "defaultdict", "Counter", "dataclass", "stage",
        "object", "module", "optimizer", "rng", "generator", "per_rank",
    }
)  # fmt: skip
"""Containers that are dicts for DCP, which looks into them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a name leads to: a tensor, a value that stood in the list of entries, or an object to build."""

    keys: Keys
    saved: Saved
    is_tensor: bool
    is_value: bool = False
    value: Any = None


def find_leaves(entries: Sequence[Entry], rank: int | None = None) -> dict[str, Found]:
    """The leaves of a checkpoint by the names that DCP's flattening would give them.

    Of what each rank has its own of that of ``rank``; without a rank all, named by their numbers.

    Raises `RestoreError` when two leaves would have one name.
    """
    found: dict[str, Found] = {}
    root = tree(entries)
    flat = root.container is not None and root.container.name == FLAT
    for leaf in _children(root, rank) if flat else _below(root, (), rank):
        name = name_of(leaf.keys)
        if name in found:
            raise RestoreError(
                f"{found[name].saved.path} and {leaf.saved.path} would both be named {name!r} in DCP",
                hint="read this checkpoint with everstep.load",
                name=name,
            )
        found[name] = leaf
    return found


def _children(root: Saved, rank: int | None) -> Iterator[Found]:
    """The root's children as they are."""
    for key, each in root.pairs():
        own = each.container is not None and each.container.type == "per_rank" and rank is not None
        child = each.child(rank) if own else each
        if child is None:
            continue
        yield Found(keys=(str(key),), saved=child, is_tensor=_is_tensor(child))


def _below(node: Saved, keys: Keys, rank: int | None) -> Iterator[Found]:
    entry = node.container
    if entry is None:
        yield from _leaf(node, keys)
    elif entry.type == "per_rank" and rank is not None:
        own = node.child(rank)
        if own is not None:
            yield from _below(own, keys, rank)
    elif entry.type in _MAPPINGS:
        for key, child in node.pairs():
            yield from _below(child, (*keys, str(key)), rank)
    elif entry.type == "list" and not _terminal(node):
        for number, child in node.pairs():
            yield from _below(child, (*keys, number), rank)
    else:
        yield Found(keys=keys, saved=node, is_tensor=False)


def _leaf(node: Saved, keys: Keys) -> Iterator[Found]:
    if _is_tensor(node):
        yield Found(keys=keys, saved=node, is_tensor=True)
    elif node.value is None:
        yield Found(keys=keys, saved=node, is_tensor=False)
    else:
        values: list[tuple[Keys, Any]] = []
        traverse_state_dict({"": decode(node.value.value)}, lambda at, value: values.append((at[1:], value)))
        for at, value in values:
            yield Found(keys=(*keys, *at), saved=node, is_tensor=False, is_value=True, value=value)


def _is_tensor(node: Saved) -> bool:
    """Whether DCP reads it as a tensor; NumPy's arrays are objects to it."""
    return node.array and node.place().base.framework in {"torch", "jax"}


def _terminal(node: Saved) -> bool:
    """DCP's rule: a list is one object unless a dict, a tensor or a list with one of these is in it."""
    return not any(
        _is_tensor(child)
        or (child.container is not None and child.container.type in _MAPPINGS)
        or (child.container is not None and child.container.type == "list" and not _terminal(child))
        or (child.value is not None and _value_opens(decode(child.value.value)))
        for child in node.children.values()
    )


def _value_opens(value: Any) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, list) and any(map(_value_opens, value)))


def metadata_of(leaves: Mapping[str, Found], *, checkpoint_id: str) -> Metadata:
    """The metadata: each tensor as one chunk, since our own plan finds where its parts lie."""
    return Metadata(
        state_dict_metadata={name: _storage(leaf) for name, leaf in leaves.items()},
        planner_data={name: leaf.keys for name, leaf in leaves.items()},
        storage_data=None,
        storage_meta=StorageMeta(checkpoint_id=checkpoint_id, load_id=checkpoint_id),
    )


def _storage(leaf: Found) -> TensorStorageMetadata | BytesStorageMetadata:
    if not leaf.is_tensor:
        return BytesStorageMetadata()
    place = leaf.saved.place()
    size = torch.Size(place.shape)
    base: Tensor = place.base
    return TensorStorageMetadata(
        properties=TensorProperties(dtype=dtype_of(base.dtype)),
        size=size,
        chunks=[ChunkStorageMetadata(offsets=torch.Size([0] * len(size)), sizes=size)],
    )
