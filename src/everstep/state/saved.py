"""The saved state as a tree, built from the flat entries."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from everstep.errors import InvalidManifest
from everstep.format.entries import Alias, Container, Entry, Tensor, Value
from everstep.format.paths import join, parent
from everstep.format.values import decode
from everstep.state.sharing import View, row_major

__all__ = ["Place", "Saved", "tree"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a saved array lies: in the bytes of ``base``, as ``view``."""

    base: Tensor
    view: View

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's shape."""
        return self.view.shape

    @property
    def whole(self) -> bool:
        """Whether its elements in row-major order are just the base's."""
        view = self.view
        return (
            view.offset == 0
            and math.prod(view.shape) == math.prod(self.base.shape)
            and all(
                n == 1 or a == b
                for n, a, b in zip(view.shape, view.strides, row_major(view.shape), strict=True)
            )
        )


@dataclass(slots=True, kw_only=True)
class Saved:
    """One entry and its children, by the text of their last component.

    Reads only; it is built once by `tree`.
    """

    entry: Entry
    children: dict[str, Saved] = field(default_factory=dict)
    everything: Mapping[str, Saved] = field(repr=False)

    @property
    def path(self) -> str:
        """Its path."""
        return self.entry.path

    @property
    def container(self) -> Container | None:
        """The entry, when it is a container."""
        return self.entry if isinstance(self.entry, Container) else None

    @property
    def value(self) -> Value | None:
        """The entry, when it is a plain value."""
        return self.entry if isinstance(self.entry, Value) else None

    @property
    def array(self) -> bool:
        """Whether it is an array with bytes, or tied to one; long bytes are none."""
        return isinstance(self.entry, Alias) or (
            isinstance(self.entry, Tensor) and self.entry.framework != "bytes"
        )

    @property
    def has_arrays(self) -> bool:
        """Whether it is an array or has one in it."""
        return self.array or any(child.has_arrays for child in self.children.values())

    def child(self, key: object) -> Saved | None:
        """The child of this key."""
        return self.children.get(join("", key))

    def pairs(self) -> Iterator[tuple[Any, Saved]]:
        """The children with their keys, decoded; of a list, with their indexes."""
        entry = self.container
        keys = [] if entry is None or entry.keys is None else [decode(key) for key in entry.keys]
        if entry is not None and entry.keys is None:
            keys = list(range(entry.length))
        for key in keys:
            yield key, self.children[join("", key)]

    def leaves(self) -> Iterator[str]:
        """The paths of the leaves in it, or its own."""
        if self.container is None:
            yield self.path
        for child in self.children.values():
            yield from child.leaves()

    def place(self) -> Place:
        """Where the bytes of an array are."""
        entry = self.entry
        if isinstance(entry, Tensor):
            return Place(base=entry, view=_bounded(entry, _own_view(entry), entry.path))
        assert isinstance(entry, Alias), entry
        found = self.everything.get(entry.of)
        base = found.entry if found else None
        if not isinstance(base, Tensor):
            raise InvalidManifest(
                f"{entry.path} is tied to {entry.of}, which is no array", field="of", path=entry.path
            )
        if entry.shape is None:
            return Place(base=base, view=_bounded(base, _own_view(base), entry.path))
        view = View(shape=entry.shape, strides=entry.strides, offset=entry.offset)
        return Place(base=base, view=_bounded(base, view, entry.path))


def tree(entries: Sequence[Entry]) -> Saved:
    """The root of the tree. Raises `InvalidManifest` when the entries are none."""
    everything: dict[str, Saved] = {}
    for entry in entries:
        node = Saved(entry=entry, everything=everything)
        if entry.path in everything:
            raise InvalidManifest(f"the path {entry.path!r} stands twice", field="path", path=entry.path)
        everything[entry.path] = node
        if not entry.path:
            continue
        above = everything.get(parent(entry.path))
        if above is None or above.container is None:
            raise InvalidManifest(f"{entry.path} is in no container", field="path", path=entry.path)
        above.children[entry.path.rpartition("/")[2]] = node
    if "" not in everything:
        raise InvalidManifest("the entries have no root", field="entries")
    for node in everything.values():
        _check_children(node)
    return everything[""]


def _check_children(node: Saved) -> None:
    entry = node.container
    if entry is None:
        return
    count = entry.length if entry.keys is None else len(entry.keys)
    keys = map(decode, entry.keys) if entry.keys is not None else range(entry.length)
    if count != len(node.children) or {join("", key) for key in keys} != set(node.children):
        raise InvalidManifest(
            f"the children of {entry.path or 'the root'} are not its keys", field="keys", path=entry.path
        )


def _own_view(entry: Tensor) -> View:
    stored = entry.extra.get("view")
    if stored is None:
        return View(shape=entry.shape, strides=row_major(entry.shape), offset=0)
    try:
        shape, strides = (tuple(int(n) for n in stored[name]) for name in ("shape", "strides"))
        return View(shape=shape, strides=strides, offset=int(stored["offset"]))
    except (TypeError, ValueError, KeyError) as error:
        raise InvalidManifest(f"the view of {entry.path} cannot be read", field="extra") from error


def _bounded(base: Tensor, view: View, path: str) -> View:
    """A view that stays inside its base: outside it is memory of others."""
    fits = (
        len(view.shape) == len(view.strides)
        and min((*view.shape, *view.strides, view.offset), default=0) >= 0
    )
    if fits and 0 not in view.shape:
        last = view.offset + sum((n - 1) * s for n, s in zip(view.shape, view.strides, strict=True))
        fits = last < math.prod(base.shape)
    if not fits:
        raise InvalidManifest(f"the view of {path} reaches outside {base.path}", field="strides", path=path)
    return view
