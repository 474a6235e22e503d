"""A folder that ``dcp.save`` wrote with torch's own storage, as a training state's flat form."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from everstep.errors import InvalidManifest
from everstep.format.dtypes import ITEM_BYTES
from everstep.format.entries import Tensor
from everstep.integrations.dcp.folder import Place, StoredObject, StoredTensor, read_folder
from everstep.integrations.dcp.names import path_of
from everstep.integrations.dcp.tree import Leaf, grow
from everstep.integrations.dcp.values import object_leaf
from everstep.integrations.torch_read import ForeignPickle
from everstep.state.flat import Flat, Piece
from everstep.state.torch_arrays import TorchBytes, dtype_name

__all__ = ["read_dcp"]


def read_dcp(folder: Path) -> Flat:
    """What the folder holds, nested as it was. Tensors are read when their bytes are copied.

    Objects are read with ``weights_only``, so nothing in them is called. Raises `ForeignPickle`,
    `InvalidManifest`, `NotFound`, and `UnsupportedLeaf` for an object that has no plain form.
    """
    leaves: list[Leaf] = []
    pieces: list[Piece] = []
    for name, stored in read_folder(folder).items():
        if isinstance(stored, StoredObject):
            leaf, parts = object_leaf(stored.keys, _load(name, stored.place))
            leaves.append(leaf)
            pieces += parts
            continue
        path = path_of(stored.keys)
        entry = Tensor(path=path, dtype=stored.dtype, shape=stored.shape, framework="torch")
        leaves.append(Leaf(keys=stored.keys, entries=(entry,)))
        pieces += _pieces(name, path, stored)
    entries = grow(leaves)
    order = {entry.path: n for n, entry in enumerate(entries)}
    pieces.sort(key=lambda piece: order[piece.path])
    return Flat(entries=entries, pieces=tuple(pieces), synchronize=lambda: None)


def _pieces(name: str, path: str, stored: StoredTensor) -> list[Piece]:
    return [
        Piece(
            path=path,
            dtype=stored.dtype,
            box=box,
            nbytes=math.prod(box.sizes) * ITEM_BYTES[stored.dtype],
            source=_Stored(name=name, place=place, dtype=stored.dtype, sizes=box.sizes),
        )
        for box, place in stored.chunks
        if box.elements or 0 in stored.shape
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """A `Source` in a file of the folder."""

    name: str
    place: Place
    dtype: str
    sizes: tuple[int, ...]

    def view(self) -> memoryview | None:
        return None

    def copy_to(self, into: memoryview) -> None:
        found = _load(self.name, self.place)
        if (
            not isinstance(found, torch.Tensor)
            or tuple(found.shape) != self.sizes
            or dtype_name(found.dtype) != self.dtype
        ):
            raise InvalidManifest(
                f"{self.name}: {self.place.file} holds another thing than {self.dtype}{list(self.sizes)}",
                path=str(self.place.file),
                field="storage_data",
            )
        TorchBytes(found).copy_to(into)


def _load(name: str, place: Place) -> Any:
    with place.file.open("rb") as file:
        file.seek(place.offset)
        body = io.BytesIO(file.read(place.length))
    try:
        return torch.load(body, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        told = str(error).splitlines()
        wants = next((line.strip() for line in told if "GLOBAL" in line or "global" in line), told[0])
        raise ForeignPickle(
            f"{name} in {place.file} was refused unexecuted: {wants:.300}",
            hint="load it where you trust it, and save it again with everstep's StorageWriter",
            path=str(place.file),
            name=name,
        ) from None
    except (RuntimeError, EOFError, ValueError, KeyError, IndexError, AttributeError, TypeError) as error:
        raise InvalidManifest(
            f"{name} in {place.file} is nothing that torch reads: {(str(error) or type(error).__name__):.200}",
            hint="fetch the folder again; it may be cut short",
            path=str(place.file),
            field="storage_data",
        ) from None
