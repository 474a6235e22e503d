"""What the ``.metadata`` of a DCP folder says, checked: names, chunks, and where in which file they lie."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from everstep.errors import InvalidManifest, NotFound
from everstep.format.box import Box
from everstep.format.dtypes import ITEM_BYTES
from everstep.format.limits import MAX_TENSOR_BYTES
from everstep.integrations.dcp.names import Keys, keys_of
from everstep.integrations.dcp.pickled import Made, Named, read_pickle

__all__ = ["METADATA", "Place", "StoredObject", "StoredTensor", "read_folder"]

METADATA: Final = ".metadata"
_MAX_BYTES: Final = 1 << 30
_FILE: Final = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_. +=@-]{0,254}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """``length`` bytes at ``offset`` of a file in the folder: what ``torch.save`` wrote."""

    file: Path
    offset: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """A tensor of the folder, and its chunks."""

    keys: Keys
    dtype: str
    shape: tuple[int, ...]
    chunks: tuple[tuple[Box, Place], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """What is no tensor."""

    keys: Keys
    place: Place


def read_folder(folder: Path) -> dict[str, StoredTensor | StoredObject]:
    """By name what the folder holds. Nothing outside of it is looked at.

    Raises `NotFound` without metadata, `ForeignPickle`, and `InvalidManifest` naming the field.
    """
    path = folder / METADATA
    if not path.is_file() or path.is_symlink():
        raise NotFound(
            f"{folder} has no {METADATA}", hint="name a folder that dcp.save wrote", path=str(folder)
        )
    if path.stat().st_size > _MAX_BYTES:
        raise _fault(path, "size", f"more than {_MAX_BYTES} bytes")
    root = _fields(read_pickle(path.read_bytes(), str(path)), "Metadata", path)
    places = _places(root.get("storage_data"), folder, path)
    mappings = _mappings(root.get("planner_data"))
    described = root.get("state_dict_metadata")
    if not isinstance(described, dict):
        raise _fault(path, "state_dict_metadata", "it is no dict")
    found: dict[str, StoredTensor | StoredObject] = {}
    for name, told in described.items():
        if not isinstance(name, str):
            raise _fault(path, "state_dict_metadata", f"{name!r:.80} is no name")
        keys = keys_of(name, mappings)
        if isinstance(told, Made) and told.kind.endswith(".BytesStorageMetadata"):
            found[name] = StoredObject(keys=keys, place=_place(places, name, None, path))
        else:
            found[name] = _tensor(name, keys, told, places, path)
    return found


_Places = dict[tuple[str, tuple[int, ...] | None], Place]


def _tensor(name: str, keys: Keys, told: Any, places: _Places, path: Path) -> StoredTensor:
    fields = _fields(told, "TensorStorageMetadata", path)
    properties = fields.get("properties")
    state = properties.state if isinstance(properties, Made) else None
    dtype = state[0] if isinstance(state, tuple) and state else None
    if isinstance(state, dict):  # from versions before 2.1
        dtype = state.get("dtype")
    if not isinstance(dtype, Named) or dtype.name.removeprefix("torch.") not in ITEM_BYTES:
        raise _fault(path, f"{name:.200}.properties.dtype", f"{dtype!r:.80} is not known to this version")
    shape = _size(fields.get("size"), path, f"{name:.200}.size")
    chunks = fields.get("chunks")
    if not isinstance(chunks, list):
        raise _fault(path, f"{name:.200}.chunks", "it is no list")
    boxes = []
    for chunk in chunks:
        part = _fields(chunk, "ChunkStorageMetadata", path)
        offsets = _size(part.get("offsets"), path, f"{name:.200}.chunks.offsets")
        box = Box(offsets, _size(part.get("sizes"), path, f"{name:.200}.chunks.sizes"))
        if not box.within(shape):
            raise _fault(path, f"{name:.200}.chunks", f"{box} is not inside {shape}")
        boxes.append((box, _place(places, name, offsets, path)))
    return StoredTensor(keys=keys, dtype=dtype.name.removeprefix("torch."), shape=shape, chunks=tuple(boxes))


def _places(told: Any, folder: Path, path: Path) -> _Places:
    if not isinstance(told, dict):
        raise _fault(
            path, "storage_data", "it is no dict: another storage than torch's FileSystemWriter wrote it"
        )
    found: _Places = {}
    for index, info in told.items():
        key, place = _fields(index, "MetadataIndex", path), _fields(info, "_StorageInfo", path)
        name, at = key.get("fqn"), key.get("offset")
        if not isinstance(name, str):
            raise _fault(path, "storage_data", f"{name!r:.80} is no name")
        offset = None if at is None else _size(at, path, f"storage_data[{name:.200}].offset")
        found[name, offset] = _stored(place, name, folder, path)
    return found


def _stored(place: Mapping[str, Any], name: str, folder: Path, path: Path) -> Place:
    file, start, length = place.get("relative_path"), place.get("offset"), place.get("length")
    field = f"storage_data[{name:.200}]"
    if not isinstance(file, str) or not _FILE.fullmatch(file) or file in {".", ".."}:
        raise _fault(path, f"{field}.relative_path", f"{file!r:.200} is not the name of a file of the folder")
    if place.get("transform_descriptors"):
        raise _fault(
            path, f"{field}.transform_descriptors", f"{place['transform_descriptors']!r:.80} is not read"
        )
    full = folder / file
    if full.is_symlink() or not full.is_file():
        raise NotFound(f"{full} is missing, or a link; {METADATA} names it", hint="fetch the folder again")
    if type(start) is not int or type(length) is not int or start < 0 or length < 0:
        raise _fault(path, f"{field}.offset", f"{start!r:.40} and {length!r:.40}")
    if start + length > full.stat().st_size:
        raise _fault(path, f"{field}.length", f"{file} ends before byte {start + length}")
    return Place(file=full, offset=start, length=length)


def _place(places: _Places, name: str, offset: tuple[int, ...] | None, path: Path) -> Place:
    found = places.get((name, offset))
    if found is None:
        raise _fault(path, f"storage_data[{name:.200}]", f"nothing is said of {name!r:.200} at {offset}")
    return found


def _mappings(told: Any) -> dict[str, Keys]:
    """The keys that led to each name; what is no such table is passed over: names then stand for themselves."""
    if not isinstance(told, dict):
        return {}
    return {
        name: tuple(keys)
        for name, keys in told.items()
        if isinstance(name, str)
        and isinstance(keys, tuple | list)
        and all(type(key) in (str, int) for key in keys)
    }


def _size(told: Any, path: Path, field: str) -> tuple[int, ...]:
    if isinstance(told, Made) and told.kind == "torch.Size" and len(told.args) == 1:
        told = told.args[0]
    if not isinstance(told, tuple | list) or not all(
        type(n) is int and 0 <= n <= MAX_TENSOR_BYTES for n in told
    ):
        raise _fault(path, field, f"{told!r:.80} is no size")
    return tuple(told)


def _fields(told: Any, kind: str, path: Path) -> dict[str, Any]:
    if not isinstance(told, Made) or not told.kind.endswith(f".{kind}") or not isinstance(told.state, dict):
        raise _fault(path, kind, f"{told.kind if isinstance(told, Made) else told!r:.80} stands in its place")
    return told.state


def _fault(path: Path, field: str, why: str) -> InvalidManifest:
    return InvalidManifest(f"{path}: {field}: {why}", path=str(path), field=field)
