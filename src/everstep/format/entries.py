"""The training state as a flat list in pre-order: containers, plain values, tensors and aliases.

A path names each entry: the components joined by ``/``, with ``~`` written ``~0`` and ``/`` written ``~1``
(RFC 6901 without the leading slash; `paths` has the few other escapes). The root has the empty path. A
list's components are its indexes, a dict's the text of its keys.
"""

from __future__ import annotations

from typing import Any

import msgspec

from everstep.format.paths import component, join

__all__ = ["Alias", "Container", "Entry", "Layout", "Tensor", "Value", "component", "join"]


class Container(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="container", omit_defaults=True
):
    """A node with children; they follow it in the list.

    ``type`` is one of dict, list, tuple, namedtuple, dataclass, object, per_rank, or a name that the
    state room defines. ``keys`` are the children's keys in order, as encoded values (`values`); absent
    for list and tuple, whose children are counted by ``length``. ``name`` is the class's qualified name,
    for people; nothing is ever imported by it.
    """

    path: str
    type: str
    keys: list[Any] | None = None
    length: int = 0
    name: str = ""


class Value(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="value"):
    """A plain value in the list itself, as encoded by `values`."""

    path: str
    value: Any


class Layout(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a tensor lies on the ranks: a mesh of ranks, and one placement for each mesh dimension.

    The mesh has ``shape`` (written as ``mesh``); the rank at a coordinate is ``start`` plus the sum of coordinate
    times ``strides`` (absent: row-major, the last dimension by ones), or, for a mesh that is not so regular,
    ``ranks`` in row-major order (a rank with several devices stands there several times). ``names`` are those
    of the mesh dimensions, for people.

    ``placements`` are ``"replicate"``, ``"shard:<dim>"``, or ``"strided:<dim>:<factor>"`` (cut into ``factor``
    parts first, of each of which a coordinate has its share), applied in mesh order, each to what those before
    left; a part is the ceiling of the quotient, the last ones smaller or empty. From these the boxes of every
    rank follow by arithmetic: `layouts`.
    """

    shape: tuple[int, ...] = msgspec.field(name="mesh")
    names: tuple[str, ...] = ()
    placements: tuple[str, ...]
    start: int = 0
    strides: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()


class Tensor(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="tensor", omit_defaults=True):
    """An array of one element type; its bytes are in chunks, listed in the shards of an index.

    ``framework`` says what it was: torch, numpy, jax, or bytes (a long bytes value, uint8, 1-d).
    ``extra`` holds what its framework needs to make it again (a quantizer's scales, a datetime's unit).
    ``layout`` is absent for a tensor that is whole on every rank, or whole on its one rank (in a ``per_rank``).
    """

    path: str
    dtype: str
    shape: tuple[int, ...]
    framework: str
    layout: Layout | None = None
    extra: dict[str, Any] = {}


class Alias(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="alias", omit_defaults=True):
    """The same memory as an earlier tensor: tied. With ``shape`` it is a view into it.

    ``of`` is the path of the tensor that holds the bytes. For a view, ``offset`` and ``strides`` are in
    elements, from that tensor's first element, it being contiguous.
    """

    path: str
    of: str
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] = ()
    offset: int = 0


Entry = Container | Value | Tensor | Alias
