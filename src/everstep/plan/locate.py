"""Which ranks' indexes a restore must read, by arithmetic, from the manifest alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from everstep.format.box import Box
from everstep.format.dtypes import ITEM_BYTES
from everstep.format.entries import Container, Entry, Layout, Tensor
from everstep.format.layouts import holders, parts, sharers
from everstep.plan.dealing import deal
from everstep.plan.load import Loadable

__all__ = ["locate"]

_Group = tuple[int, ...]
"""The ranks that hold the same bytes, sorted."""

_Kind = tuple[Layout | None, tuple[int, ...], int]
"""Tensors that are cut alike into pieces of the same sizes: layout, shape, bytes of an element."""


def locate(wanted: Sequence[Loadable], entries: Sequence[Entry], world: int) -> tuple[int, ...]:
    """The ranks whose indexes should hold every wanted box, sorted.

    Goes by the manifest's entries and by the rule of `plan_save`. A tensor without a layout is a replica
    on each of the ``world`` ranks that saved; one below a ``per_rank`` container is that rank's own.
    It is a prediction: `plan_load` over these indexes raises `MissingElements` where a save was dealt
    otherwise, and then all indexes are to be read. Time is O(leaves + boxes that meet), and for each
    group of replicas that is cut in a way not met before O(leaves) again.
    """
    owned = [(tensor, owner) for tensor, owner in _owned(entries) if owner is None or owner < world]
    tensors = {tensor.path: (tensor, owner) for tensor, owner in owned}
    dealing = _Dealing([tensor for tensor, owner in owned if owner is None], tuple(range(world)))
    found: set[int] = set()
    for box in wanted:
        if len(found) == world:
            break
        tensor, owner = tensors.get(box.path, (None, None))
        if tensor is None or not box.nbytes:
            continue
        if owner is not None:
            found.add(owner)
        else:
            found.update(dealing.writers(tensor, box.box))
    return tuple(sorted(rank for rank in found if rank < world))


def _owned(entries: Iterable[Entry]) -> Iterator[tuple[Tensor, int | None]]:
    """The tensors, each with the rank whose own it is; None: the path names one value on all ranks."""
    inside = ""
    for entry in entries:
        if inside and not entry.path.startswith(inside):
            inside = ""
        if isinstance(entry, Tensor):
            owner = entry.path[len(inside) :].partition("/")[0] if inside else ""
            yield entry, int(owner) if owner.isdecimal() else None
        elif not inside and isinstance(entry, Container) and entry.type == "per_rank":
            inside = f"{entry.path}/"


class _Dealing:
    """Who writes the pieces that several ranks share, worked out group by group, and once for groups cut alike."""

    def __init__(self, tensors: Iterable[Tensor], everyone: _Group) -> None:
        self._everyone = everyone
        self._kinds: dict[_Kind, list[str]] = defaultdict(list)
        for tensor in tensors:
            self._kinds[_kind(tensor)].append(tensor.path)
        self._boxes: dict[_Group, dict[_Kind, list[Box]]] = {}
        self._members: dict[_Group, dict[tuple[str, int], int]] = {}
        self._known: dict[tuple[object, ...], dict[tuple[str, int], int]] = {}

    def writers(self, tensor: Tensor, box: Box) -> Iterator[int]:
        """The ranks that write elements of a box."""
        if tensor.layout is None:
            yield self._writer(tensor, self._everyone, Box.whole(tensor.shape))
            return
        for group, held in holders(tensor.layout, tensor.shape, box):
            yield group[0] if len(group) == 1 else self._writer(tensor, group, held)

    def _writer(self, tensor: Tensor, group: _Group, box: Box) -> int:
        if group not in self._members:
            self._boxes[group] = {kind: self._pieces(kind, group) for kind in self._kinds}
            self._members[group] = self._dealt(group)
        number = self._boxes[group][_kind(tensor)].index(box)
        return group[self._members[group][tensor.path, number]]

    def _pieces(self, kind: _Kind, group: _Group) -> list[Box]:
        """The boxes of such a tensor that just this group shares, sorted."""
        layout, shape, _ = kind
        if layout is None:
            return [Box.whole(shape)] if group == self._everyone else []
        first = group[0]
        return sorted(
            part.box
            for part in parts(layout, shape, first)
            if sharers(layout, first, part.coordinate) == group
        )

    def _dealt(self, group: _Group) -> dict[tuple[str, int], int]:
        """By path and the box's number, which member writes it."""
        sizes = {
            kind: tuple(box.elements * kind[2] for box in boxes) for kind, boxes in self._boxes[group].items()
        }
        alike = (len(group), *sizes.values())
        if alike not in self._known:
            names = [
                (path, number)
                for kind, paths in self._kinds.items()
                for path in paths
                for number in range(len(sizes[kind]))
            ]
            pieces = [
                (sizes[kind][number], path, box)
                for kind, paths in self._kinds.items()
                for path in paths
                for number, box in enumerate(self._boxes[group][kind])
            ]
            self._known[alike] = dict(zip(names, deal(pieces, len(group)), strict=True))
        return self._known[alike]


def _kind(tensor: Tensor) -> _Kind:
    return tensor.layout, tensor.shape, ITEM_BYTES[tensor.dtype]
