"""From read items of a DCP plan to wanted boxes, and from their bytes to the planner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem

from everstep.errors import RestoreError
from everstep.format.box import Box
from everstep.format.dtypes import ITEM_BYTES
from everstep.integrations.dcp.metadata import Found
from everstep.integrations.dcp.values import as_file
from everstep.state.flat import Coverage, Restoration, Wanted
from everstep.state.kinds import fresh, known
from everstep.state.restoring import Restoring
from everstep.state.saved import Saved
from everstep.state.torch_arrays import TorchBytes, dtype_of

__all__ = ["fetching"]


def fetching(plan: LoadPlan, planner: LoadPlanner, leaves: Mapping[str, Found]) -> Restoration[None]:
    """What a plan asks for, as a restore: boxes to fetch, and what gives them to the planner.

    Raises `RestoreError` naming what does not fit.
    """
    reads = _Reads(plan, planner, leaves)
    return Restoration(wanted=tuple(reads.wanted), coverage=Coverage(restored=()), finish=reads.finish)


class _Reads:
    """The reads of one plan."""

    def __init__(self, plan: LoadPlan, planner: LoadPlanner, leaves: Mapping[str, Found]) -> None:
        self._planner = planner
        self._wanted: list[Wanted] = []
        self._after: list[Callable[[], None]] = []
        self._objects: list[tuple[ReadItem, Saved]] = []
        for item in plan.items:
            name = item.storage_index.fqn
            leaf = leaves.get(name)
            if leaf is None or leaf.is_tensor != (item.type == LoadItemType.TENSOR):
                raise RestoreError(
                    f"the checkpoint has no {item.type.name.lower()} named {name!r}", name=name
                )
            if item.type == LoadItemType.TENSOR:
                self._tensor(item, leaf)
            elif leaf.is_value:
                self._after.append(partial(self._load, item, leaf.value))
            else:
                self._objects.append((item, leaf.saved))
        self._build()

    @property
    def wanted(self) -> Sequence[Wanted]:
        """The boxes to download."""
        return self._wanted

    def finish(self) -> None:
        """Give the planner all that came."""
        for after in self._after:
            after()

    def _load(self, item: ReadItem, value: Any) -> None:
        self._planner.load_bytes(item, as_file(value))

    def _tensor(self, item: ReadItem, leaf: Found) -> None:
        live: torch.Tensor = self._planner.resolve_tensor(item).detach()
        place = leaf.saved.place()
        base = place.base
        begin = item.storage_index.offset or (0,) * len(place.shape)
        box = Box(tuple(a + b for a, b in zip(begin, item.storage_offsets, strict=True)), tuple(item.lengths))
        name = item.dest_index.fqn
        if tuple(live.shape) != box.sizes or not box.within(place.shape):
            raise RestoreError(f"{name}: {tuple(live.shape)} does not take {box} of {place.shape}", name=name)
        if "quantizer" in base.extra:
            raise RestoreError(
                f"{name} is quantized, which DCP cannot take", hint="read it with everstep.load"
            )
        if place.shape == base.shape and place.whole:
            self._direct(live, leaf, box)
        else:
            self._through_base(live, leaf, box)
        self._after.append(lambda: self._planner.commit_tensor(item, live))

    def _direct(self, live: torch.Tensor, leaf: Found, box: Box) -> None:
        base = leaf.saved.place().base
        dtype = dtype_of(base.dtype)
        target = live
        if live.dtype != dtype:
            target = torch.empty(box.sizes, dtype=dtype)
            self._after.append(lambda: _copy(live, target))
        self._want(base.path, base.dtype, box, target)

    def _through_base(self, live: torch.Tensor, leaf: Found, box: Box) -> None:
        """A view into another tensor's bytes: all of that is read."""
        place = leaf.saved.place()
        base, view = place.base, place.view
        whole = torch.empty(base.shape, dtype=dtype_of(base.dtype))
        self._want(base.path, base.dtype, Box.whole(base.shape), whole)
        part = whole.as_strided(view.shape, view.strides, view.offset)
        for dim, (start, length) in enumerate(zip(box.offsets, box.sizes, strict=True)):
            part = part.narrow(dim, start, length)
        self._after.append(lambda: _copy(live, part))

    def _want(self, path: str, dtype: str, box: Box, target: torch.Tensor) -> None:
        nbytes = box.elements * ITEM_BYTES[dtype]
        self._wanted.append(Wanted(path=path, dtype=dtype, box=box, nbytes=nbytes, target=TorchBytes(target)))

    def _build(self) -> None:
        """Objects with arrays in them, and long texts."""
        if not self._objects:
            return
        kinds = known()
        into = Restoring(kinds.live, kinds.builders, rank=0, free=True, fresh=fresh)
        laters = [(item, into.build(saved)) for item, saved in self._objects]
        restoration = into.done(lambda: None)
        self._wanted += restoration.wanted

        def load() -> None:
            restoration.finish()
            for item, later in laters:
                self._load(item, later())

        self._after.append(load)


def _copy(live: torch.Tensor, found: torch.Tensor) -> None:
    with torch.no_grad():
        live.copy_(found)
