"""The header of a pack: a safetensors file whose data begins at a whole page.

An entry is the box of a tensor, or a run of its bytes. Readers of everstep go by the index and never need the
header: it is there so that the safetensors library alone can open a pack. Its ``check`` is the digest of the
whole header, length and padding included, with 64 zeros in its own place: so every byte of a pack is verified.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeGuard

import msgspec

from everstep.format.box import Box
from everstep.format.digests import digest_of
from everstep.format.dtypes import ITEM_BYTES, SAFETENSORS_NAME
from everstep.format.faults import Faults
from everstep.format.limits import MAX_NDIM, MAX_PACK_HEADER_BYTES, MAX_TENSOR_BYTES
from everstep.format.nesting import nested_too_deep

__all__ = [
    "PAGE",
    "PackEntry",
    "Packed",
    "entry_name",
    "entry_room",
    "header_room",
    "pack_entry",
    "parse_header",
    "write_header",
]

PAGE: Final = 4096
_ENCODER: Final = msgspec.json.Encoder()
_UNCHECKED: Final = "0" * 64
_BEFORE_CHECK: Final = b'{"__metadata__":{"everstep":"1","check":"'
_CHECK: Final = slice(8 + len(_BEFORE_CHECK), 8 + len(_BEFORE_CHECK) + 64)
_METADATA: Final = {"everstep": "1", "check": _UNCHECKED}
_FRAME: Final = _CHECK.stop + len('"}}')
_ENTRY_FRAME: Final = len(',:{"dtype":"F8_E4M3","shape":[],"data_offsets":[,]}') + 2 * len(
    str(MAX_TENSOR_BYTES)
)
_ITEM: Final = {name: ITEM_BYTES[dtype] for dtype, name in SAFETENSORS_NAME.items()}


class PackEntry(NamedTuple):
    """What stands in a header: a name, a safetensors type, a shape, and how many bytes follow those before."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int


class Packed(NamedTuple):
    """An entry as found: ``offset`` counts from the beginning of the pack."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


def entry_name(path: str, shape: tuple[int, ...], box: Box, start: int = 0, end: int | None = None) -> str:
    """The name of a box, or of the bytes from ``start`` to ``end`` of a box: ``path[0:4,8:16]#0-8388608``.

    The brackets are left out when the box is the whole tensor, the bytes when they are all. In the path
    ``[`` is written ``~b`` and ``#`` ``~h``, so that two boxes never have one name.
    """
    name = "~m" if path == "__metadata__" else path.replace("[", "~b").replace("#", "~h")
    if box.sizes != shape:
        name += f"[{','.join(f'{at}:{at + n}' for at, n in zip(box.offsets, box.sizes, strict=True))}]"
    return name if end is None else f"{name}#{start}-{end}"


def pack_entry(
    path: str, dtype: str, shape: tuple[int, ...], box: Box, *, start: int = 0, end: int | None = None
) -> PackEntry:
    """The entry for bytes ``start`` to ``end`` of a box of a tensor of this type and shape; all by default.

    A type that safetensors lacks, and a part of a box, stand there as bytes.
    """
    nbytes = box.elements * ITEM_BYTES[dtype]
    if start == 0 and end in (None, nbytes):
        known = SAFETENSORS_NAME.get(dtype)
        name = entry_name(path, shape, box)
        return PackEntry(name, known or "U8", box.sizes if known else (nbytes,), nbytes)
    end = nbytes if end is None else end
    return PackEntry(entry_name(path, shape, box, start, end), "U8", (end - start,), end - start)


def entry_room(path: str, dtype: str, shape: tuple[int, ...], box: Box) -> int:
    """The most bytes of a header that an entry for this box, or for any part of it, takes."""
    nbytes = box.elements * ITEM_BYTES[dtype]
    name = len(_ENCODER.encode(entry_name(path, shape, box, nbytes, nbytes)))
    sizes = len(str(nbytes)) + 1 + sum([len(str(size)) + 1 for size in box.sizes])
    return _ENTRY_FRAME + name + sizes


def header_room(entries_bytes: int) -> int:
    """The room for a header, in whole pages: ``entries_bytes`` is the sum of what each entry may take."""
    return -(-(_FRAME + entries_bytes) // PAGE) * PAGE


def write_header(entries: Iterable[PackEntry], into: memoryview) -> None:
    """Fill ``into``, the first pages of a pack, with the header of the entries that follow without gaps.

    Raises `InvalidManifest` when a name is there twice or the room is too small.
    """
    header: dict[str, Any] = {"__metadata__": _METADATA}
    at = count = 0
    for entry in entries:
        header[entry.name] = {
            "dtype": entry.dtype,
            "shape": entry.shape,
            "data_offsets": (at, at + entry.nbytes),
        }
        at += entry.nbytes
        count += 1
    faults = Faults("pack header")
    if len(header) != count + 1:
        raise faults.fail("name", "an entry is there twice")
    text = _ENCODER.encode(header)
    room = len(into) - 8
    if len(into) % PAGE or not len(text) <= room <= MAX_PACK_HEADER_BYTES:
        raise faults.fail("size", f"{len(text)} bytes do not go into {room}")
    into[:8] = room.to_bytes(8, "little")
    into[8:] = text.ljust(room)
    into[_CHECK] = digest_of(into).encode()


def parse_header(head: bytes, size: int, *, what: str = "pack") -> tuple[Packed, ...]:
    """The entries of a pack of ``size`` bytes, in the order of their bytes.

    ``head`` is the pack's beginning: at least the 8 bytes of the length and the header. Raises
    `InvalidManifest` naming the field for a header that is too long, not in its one form, with holes,
    overlaps, unknown types, or of another size than the pack.
    """
    faults = Faults(what)
    if len(head) < 8:
        raise faults.fail("header", f"the pack has {size} bytes")
    length = int.from_bytes(head[:8], "little")
    if not 2 <= length <= min(MAX_PACK_HEADER_BYTES, size - 8):
        raise faults.fail("header", f"it claims {length} bytes in a pack of {size}")
    if len(head) < 8 + length:
        raise faults.fail("header", f"{len(head) - 8} of its {length} bytes are there")
    if (8 + length) % PAGE:
        raise faults.fail("header", f"the data begins at byte {8 + length}, not at a whole page")
    text = head[8 : 8 + length].rstrip(b" ")
    fields = _parse(text, faults)
    fields.pop("__metadata__", None)
    found: list[Packed] = []
    end = 0
    for name, field in fields.items():
        entry = _packed(name, field, end, 8 + length, faults)
        end += entry.nbytes
        found.append(entry)
    if 8 + length + end != size:
        raise faults.fail(
            "data_offsets", f"{end} bytes of entries in a pack of {size} with {8 + length} of header"
        )
    _check(bytearray(head[: 8 + length]), faults)
    return tuple(found)


def _check(header: bytearray, faults: Faults) -> None:
    found = bytes(header[_CHECK])
    header[_CHECK] = _UNCHECKED.encode()
    if not header[8:].startswith(_BEFORE_CHECK) or digest_of(header).encode() != found:
        raise faults.fail("__metadata__.check", "it does not match the header: bytes were changed")


def _parse(text: bytes, faults: Faults) -> dict[str, Any]:
    if nested_too_deep(text, 3):
        raise faults.fail("header", "nested too deep, or brackets do not match")
    try:
        fields = msgspec.json.decode(text, type=dict[str, dict[str, Any]])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise faults.fail("header", str(error)) from error
    if _ENCODER.encode(fields) != text:
        raise faults.fail("header", "a name is there twice, or the text is not in its one form")
    return fields


def _packed(name: str, field: dict[str, Any], end: int, data: int, faults: Faults) -> Packed:
    dtype, shape, offsets = field.get("dtype"), field.get("shape"), field.get("data_offsets")
    item = _ITEM.get(dtype) if isinstance(dtype, str) else None
    if item is None:
        raise faults.fail(f"{name:.200}.dtype", f"{dtype!r:.40} is not known to this version")
    if not _naturals(shape) or len(shape) > MAX_NDIM:
        raise faults.fail(f"{name:.200}.shape", f"{shape!r:.200} is not a shape")
    if not _naturals(offsets) or len(offsets) != 2:
        raise faults.fail(f"{name:.200}.data_offsets", f"{offsets!r:.200} is not a pair of offsets")
    nbytes = math.prod(shape) * item
    if offsets[0] != end or offsets[1] != end + nbytes:
        raise faults.fail(
            f"{name:.200}.data_offsets", f"{offsets} where {[end, end + nbytes]} follows from the shapes"
        )
    return Packed(name, str(dtype), tuple(shape), data + end, nbytes)


def _naturals(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(n) is int and 0 <= n <= MAX_TENSOR_BYTES for n in value)
