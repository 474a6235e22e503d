"""Tensors of safetensors files as a training state's flat form, bytes mapped and not copied, without torch."""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from everstep.errors import InvalidManifest
from everstep.format.dtypes import ITEM_BYTES, SAFETENSORS_NAME

__all__ = ["StoredTensor", "read_safetensors"]

_MAX_HEADER: Final = 100_000_000
"""The bound of the safetensors library itself."""

_DTYPE: Final = {name: dtype for dtype, name in SAFETENSORS_NAME.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """One tensor of a file: our name of its type, its shape, and its bytes, mapped read-only."""

    dtype: str
    shape: tuple[int, ...]
    bytes: memoryview


def read_safetensors(path: Path) -> dict[str, StoredTensor]:
    """The file's tensors by name, in the file's order.

    Raises `InvalidManifest` naming the file and the field for a header that is not what the format says:
    too long, another JSON, unknown types, offsets outside the file, overlapping, or of another size.
    """
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size < 8:
            raise _invalid(path, "header", f"the file has {size} bytes")
        memory = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    length = int.from_bytes(memory[:8], "little")
    if length > min(_MAX_HEADER, size - 8):
        raise _invalid(path, "header", f"it claims {length} bytes of header in a file of {size}")
    try:
        fields = msgspec.json.decode(bytes(memory[8 : 8 + length]), type=dict[str, dict[str, Any]])
    except (msgspec.DecodeError, RecursionError) as error:
        raise _invalid(path, "header", str(error)) from error
    fields.pop("__metadata__", None)
    found = {name: _tensor(path, name, field, memory[8 + length :]) for name, field in fields.items()}
    _check_apart(path, fields)
    return found


def _tensor(path: Path, name: str, field: Mapping[str, Any], data: memoryview) -> StoredTensor:
    dtype = _DTYPE.get(field.get("dtype", ""))
    if dtype is None:
        raise _invalid(path, f"{name}.dtype", f"{field.get('dtype')!r:.40} is not known")
    shape: Any = field.get("shape")
    if not _counts(shape):
        raise _invalid(path, f"{name}.shape", f"{shape!r:.80} is no list of sizes")
    offsets: Any = field.get("data_offsets")
    if not _counts(offsets) or len(offsets) != 2 or not offsets[0] <= offsets[1] <= len(data):
        raise _invalid(path, f"{name}.data_offsets", f"{offsets!r:.80} of {len(data)} bytes")
    if math.prod(shape) * ITEM_BYTES[dtype] != offsets[1] - offsets[0]:
        raise _invalid(path, f"{name}.data_offsets", f"{offsets} hold no {dtype}{shape}")
    return StoredTensor(dtype=dtype, shape=tuple(shape), bytes=data[offsets[0] : offsets[1]])


def _counts(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= 64
        and all(type(count) is int and 0 <= count < 2**63 for count in value)
    )


def _check_apart(path: Path, fields: Mapping[str, Mapping[str, Any]]) -> None:
    end = 0
    for start, stop, name in sorted((*field["data_offsets"], name) for name, field in fields.items()):
        if start < end and start != stop:
            raise _invalid(path, f"{name}.data_offsets", "it overlaps another tensor")
        end = max(end, stop)


def _invalid(path: Path, field: str, why: str) -> InvalidManifest:
    return InvalidManifest(
        f"{path} is no safetensors file: {field}: {why}",
        hint="fetch the file again; it may be cut short",
        path=str(path),
        field=field,
    )
