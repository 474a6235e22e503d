"""A checkpoint as a folder that ``dcp.load`` and ``FileSystemReader`` read."""

from __future__ import annotations

import dataclasses
import io
import math
import os
import secrets
import shutil
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Final

import numpy as np
import torch
from torch.distributed.checkpoint.default_planner import create_default_global_save_plan
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
)
from torch.distributed.checkpoint.planner import (
    SavePlan,
    SavePlanner,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.state_dict_saver import save

from everstep.errors import RestoreError, UsageError
from everstep.format.box import Box
from everstep.format.dtypes import ITEM_BYTES
from everstep.format.entries import Alias, Tensor
from everstep.integrations.chosen import prefix_of
from everstep.integrations.dcp.metadata import Found, find_leaves
from everstep.integrations.dcp.names import Keys, name_of
from everstep.integrations.dcp.values import as_file
from everstep.integrations.exported import Exported
from everstep.state.kinds import fresh, known
from everstep.state.restoring import Restoring
from everstep.state.torch_arrays import dtype_of
from everstep.transfer.contents import Contents, slabs
from everstep.transfer.select import selects

__all__ = ["export_dcp"]

_CHUNK_BYTES: Final = 512 * 2**20


def export_dcp(
    contents: Contents, out: Path, *, select: Sequence[str] = (), skip: Sequence[str] = ()
) -> Exported:
    """Write the selected leaves to the folder ``out``, which must not be there, or be empty.

    When the one pattern is a container's path, names begin below it: a model's own state dict. NumPy arrays
    become tensors; values that ``weights_only`` refuses are left out. The folder appears whole or not at all.
    Raises `UsageError` for a folder with something in it, and when nothing is selected.
    """
    if out.is_symlink() or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise UsageError(f"{out} exists", hint="name another folder; --force replaces none", path=str(out))
    planner = _Planner(contents, select, skip)
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.name}.{secrets.token_hex(4)}.partial")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that this is one process is meant
            save({}, storage_writer=FileSystemWriter(temporary), planner=planner, no_dist=True)
        for file in (*temporary.iterdir(), temporary):
            _sync(file)
        temporary.replace(out)
        _sync(out.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return Exported(
        files=tuple(sorted(out.iterdir())),
        tensors=planner.tensors,
        bytes=planner.nbytes,
        left_out=tuple(planner.left_out),
    )


class _Planner(SavePlanner):
    """Tells torch's own writer what to write, and reads it when it is asked for."""

    def __init__(self, contents: Contents, select: Sequence[str], skip: Sequence[str]) -> None:
        prefix = prefix_of(contents.entries, select)
        above = prefix.count("/")
        self._contents = contents
        self._leaves: dict[str, Found] = {}
        self._objects: dict[str, Any] = {}
        self._mappings: dict[str, Keys] = {}
        self._items: list[WriteItem] = []
        self.left_out: list[str] = []
        self.tensors = self.nbytes = 0
        chosen = [
            found
            for found in find_leaves(contents.manifest.entries).values()
            if selects(select, found.saved.path) and not (skip and selects(skip, found.saved.path))
        ]
        contents.check_readable(_tensors(contents, chosen))
        for found in chosen:
            leaf = dataclasses.replace(found, keys=_textual(found.keys[above:]))
            self._add(name_of(leaf.keys), leaf)
        if not self._items:
            raise UsageError("nothing is selected", hint="see the paths with everstep show --all")

    def set_up_planner(
        self,
        state_dict: dict[str, Any],
        storage_meta: StorageMeta | None = None,
        is_coordinator: bool = False,  # noqa: FBT001, FBT002 - DCP's signature
    ) -> None:
        """Nothing: all is known."""

    def create_local_plan(self) -> SavePlan:
        """All items."""
        return SavePlan(self._items, planner_data=self._mappings)

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """As DCP's own planner does it."""
        plans, metadata = create_default_global_save_plan(all_plans)
        return plans, dataclasses.replace(metadata, planner_data=self._mappings)

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """As it is."""
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor | io.BytesIO:
        """Read it, verified."""
        name = write_item.index.fqn
        value = self._objects.get(name)
        if write_item.type == WriteItemType.BYTE_IO:
            return as_file(value)
        told = write_item.tensor_data
        assert told is not None
        box = Box(tuple(told.chunk.offsets), tuple(told.chunk.sizes))
        whole = value if isinstance(value, torch.Tensor) else None
        if whole is None:
            place = self._leaves[name].saved.place()
            if place.whole and place.shape == place.base.shape:
                return self._read(place.base.path, told.properties.dtype, box)
            base = self._read(place.base.path, told.properties.dtype, Box.whole(place.base.shape))
            whole = base.as_strided(place.view.shape, place.view.strides, place.view.offset)
        return whole[tuple(slice(at, at + n) for at, n in zip(box.offsets, box.sizes, strict=True))]

    def _read(self, path: str, dtype: torch.dtype, box: Box) -> torch.Tensor:
        (memory,) = self._contents.read([(path, box)])
        if not memory.nbytes:
            return torch.empty(box.sizes, dtype=dtype)
        return torch.frombuffer(memory, dtype=torch.uint8).view(dtype).reshape(box.sizes)

    def _add(self, name: str, leaf: Found) -> None:
        path = leaf.saved.path
        if leaf.is_tensor:
            place = leaf.saved.place()
            try:
                dtype = dtype_of(place.base.dtype)
            except RestoreError:
                self.left_out.append(path)
                return
            if "quantizer" in place.base.extra:
                self.left_out.append(path)
                return
            self._leaves[name] = leaf
            self._add_tensor(name, place.shape, dtype, ITEM_BYTES[place.base.dtype])
        else:
            value = leaf.value if leaf.is_value else self._built(leaf)
            value = _as_tensor(value)
            if not _loads(value):
                self.left_out.append(path)
                return
            self._objects[name] = value
            if isinstance(value, torch.Tensor):
                self._add_tensor(name, tuple(value.shape), value.dtype, value.element_size())
            else:
                self._items.append(WriteItem(index=MetadataIndex(name), type=WriteItemType.BYTE_IO))
        self._mappings[name] = leaf.keys

    def _add_tensor(self, name: str, shape: tuple[int, ...], dtype: torch.dtype, item_bytes: int) -> None:
        self.tensors += 1
        self.nbytes += math.prod(shape) * item_bytes
        boxes = list(slabs(shape, item_bytes, _CHUNK_BYTES))
        for box in boxes:
            chunk = ChunkStorageMetadata(offsets=torch.Size(box.offsets), sizes=torch.Size(box.sizes))
            told = TensorWriteData(
                chunk=chunk, properties=TensorProperties(dtype=dtype), size=torch.Size(shape)
            )
            kind = WriteItemType.TENSOR if len(boxes) == 1 else WriteItemType.SHARD
            self._items.append(
                WriteItem(index=MetadataIndex(name, chunk.offsets), type=kind, tensor_data=told)
            )

    def _built(self, leaf: Found) -> Any:
        kinds = known()
        into = Restoring(kinds.live, kinds.builders, rank=0, free=True, fresh=fresh)
        later = into.build(leaf.saved)
        restoration = into.done(later)
        self._contents.fetch(restoration.wanted)
        return restoration.finish()


def _tensors(contents: Contents, leaves: Sequence[Found]) -> Iterator[str]:
    """The paths of all tensors with bytes of these leaves: their own, and those inside objects."""
    bases = {leaf.saved.place().base.path for leaf in leaves if leaf.is_tensor}
    objects = {leaf.saved.path for leaf in leaves if not leaf.is_tensor}
    inside = tuple(f"{path}/" for path in objects)
    for path, entry in contents.entries.items():
        if path in bases or (
            isinstance(entry, Tensor | Alias) and (path in objects or path.startswith(inside))
        ):
            yield entry.of if isinstance(entry, Alias) else path


def _textual(keys: Keys) -> Keys:
    """The first key must be text: what is selected below a list is named by its numbers."""
    return (str(keys[0]), *keys[1:])


def _as_tensor(value: Any) -> Any:
    if not isinstance(value, np.ndarray | np.generic):
        return value
    native = value.astype(value.dtype.newbyteorder("="), copy=False)
    try:
        return torch.from_numpy(np.ascontiguousarray(native)).reshape(value.shape)
    except TypeError:
        return value


def _loads(value: Any) -> bool:
    """Whether what ``torch.save`` makes of it is read with ``weights_only``."""
    if isinstance(value, torch.Tensor):
        return True
    try:
        torch.load(as_file(value), weights_only=True)
    except (UnpicklingError, RuntimeError):
        return False
    return True


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
