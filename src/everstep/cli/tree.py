"""The state as a tree of names, with what each leaf is and what each branch weighs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from everstep.cli.output import jsonable
from everstep.format.dtypes import ITEM_BYTES
from everstep.format.entries import Alias, Container, Layout, Tensor, Value
from everstep.format.paths import components, parent, unescape
from everstep.format.values import decode

if TYPE_CHECKING:
    from everstep.format.entries import Entry

__all__ = ["Node", "entry_fields", "entry_words", "layout_words", "state_tree"]


@dataclass(slots=True, kw_only=True)
class Node:
    """One name of the tree: the leaves and the tensor bytes under it, itself included."""

    name: str
    what: str
    leaves: int
    bytes: int
    children: list[Node] = field(default_factory=list)


def state_tree(entries: Sequence[Entry]) -> Node:
    """The entries, which stand in pre-order, as a tree; the root is the entry without a path."""
    root = Node(name="", what="", leaves=0, bytes=0)
    nodes: dict[str, Node] = {"": root}
    for entry in entries:
        weight = _nbytes(entry)
        leaf = 0 if isinstance(entry, Container) else 1
        if entry.path == "":
            root.what = entry_words(entry)
        else:
            name = unescape(components(entry.path)[-1])
            node = Node(name=name, what=entry_words(entry), leaves=0, bytes=0)
            nodes[parent(entry.path)].children.append(node)
            nodes[entry.path] = node
        for above in _line_of(entry.path):
            nodes[above].leaves += leaf
            nodes[above].bytes += weight
    return root


def _line_of(path: str) -> list[str]:
    """The path and all above it, the root included."""
    line = [path]
    while path:
        path = parent(path)
        line.append(path)
    return line


def _nbytes(entry: Entry) -> int:
    return math.prod(entry.shape) * ITEM_BYTES[entry.dtype] if isinstance(entry, Tensor) else 0


def _shape(tensor: Tensor) -> tuple[int, ...]:
    """The shape that the training sees: a strided tensor is stored as the memory it spans."""
    view = tensor.extra.get("view")
    return tuple(view["shape"]) if isinstance(view, dict) else tensor.shape


def entry_words(entry: Entry) -> str:
    """What it is, in a few words."""
    match entry:
        case Tensor():
            laid = f" {layout_words(entry.layout)}" if entry.layout else ""
            return f"{entry.dtype}{list(_shape(entry))}{laid}"
        case Value():
            return repr(decode(entry.value))
        case Alias():
            return f"= {entry.of}"
        case Container():
            return f"{entry.type} {entry.name}" if entry.name else entry.type


def layout_words(layout: Layout) -> str:
    """How a tensor lies on the ranks: each dimension of the mesh, its ranks and its placement."""
    names = layout.names or tuple(f"dim {n}" for n in range(len(layout.shape)))
    laid = zip(names, layout.shape, layout.placements, strict=True)
    return "on " + " x ".join(f"{name}={size} ({placement})" for name, size, placement in laid)


def entry_fields(entry: Entry) -> dict[str, object]:
    """The entry as ``--json`` shows it."""
    fields: dict[str, object] = {"path": jsonable(entry.path)}
    match entry:
        case Tensor():
            fields |= {
                "kind": "tensor",
                "dtype": entry.dtype,
                "shape": list(_shape(entry)),
                "bytes": _nbytes(entry),
                "framework": entry.framework,
            }
            if entry.layout is not None:
                fields["layout"] = {
                    "mesh": list(entry.layout.shape),
                    "names": jsonable(list(entry.layout.names)),
                    "placements": list(entry.layout.placements),
                }
        case Value():
            fields |= {"kind": "value", "value": jsonable(decode(entry.value))}
        case Alias():
            fields |= {"kind": "alias", "of": jsonable(entry.of)}
        case Container():
            fields |= {"kind": "container", "type": entry.type, "name": jsonable(entry.name)}
    return fields
