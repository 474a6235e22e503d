"""The entries of a checkpoint, made from leaves that came from several ranks, and their keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from everstep.errors import DisagreeingPlans, UnsupportedLeaf
from everstep.format.entries import Container, Entry
from everstep.format.paths import join
from everstep.format.values import encode
from everstep.integrations.dcp.names import Keys, name_of

__all__ = ["FLAT", "Leaf", "grow"]

FLAT: Final = "state_dict"
"""The name of a root whose children are leaves, whatever they are: the planner did not flatten the state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A leaf of the state dict: its keys, and its entries in pre-order, the first at its own path."""

    keys: Keys
    entries: tuple[Entry, ...]


@dataclass(slots=True)
class _Node:
    below: dict[str | int, _Node] = field(default_factory=dict)
    leaf: Leaf | None = None


def grow(leaves: Iterable[Leaf], *, order: Sequence[str] = (), flat: bool = False) -> tuple[Entry, ...]:
    """All leaves in one pre-order list, in the containers that their keys tell.

    ``order`` are names in the order wanted; the others follow. An item that a list lacks was an empty dict:
    DCP leaves these out. ``flat``: each leaf is one object, and DCP must not look into it. Raises
    `DisagreeingPlans` for a leaf told twice differently, or that is also a container.
    """
    places = {name: n for n, name in enumerate(order)}
    root = _Node()
    for leaf in sorted(leaves, key=lambda leaf: places.get(name_of(leaf.keys), len(places))):
        node = root
        for key in leaf.keys:
            if node.leaf is not None:
                raise _clash(leaf)
            node = node.below.setdefault(key, _Node())
        if node.below or (node.leaf is not None and node.leaf.entries != leaf.entries):
            raise _clash(leaf)
        node.leaf = leaf
    top, *others = _entries(root, "")
    return (replace(top, name=FLAT) if flat and isinstance(top, Container) else top, *others)


def _entries(node: _Node, path: str) -> Iterator[Entry]:
    if node.leaf is not None:
        yield from node.leaf.entries
        return
    numbers = [key for key in node.below if isinstance(key, int)]
    if numbers and len(numbers) == len(node.below):
        length = max(numbers) + 1
        if min(numbers) < 0 or length > 2 * len(numbers) + 1000:
            raise UnsupportedLeaf(f"{path}: a list with the indexes {numbers[:5]} ...", path=path)
        yield Container(path=path, type="list", length=length)
        for number in range(length):
            yield from _entries(node.below.get(number, _Node()), join(path, number))
        return
    yield Container(path=path, type="dict", keys=[encode(key) for key in node.below])
    for key, below in node.below.items():
        yield from _entries(below, join(path, key))


def _clash(leaf: Leaf) -> DisagreeingPlans:
    name = name_of(leaf.keys)
    return DisagreeingPlans(
        f"ranks describe {name!r} differently",
        hint="one name must mean one value, of one shape, on all ranks",
        path=name,
    )
