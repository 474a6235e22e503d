"""One staged pack made ready to be written: gaps closed, header in front."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence

from everstep.format.packs import PackEntry, pack_entry, write_header
from everstep.state.flat import Piece
from everstep.transfer.layout import Part
from everstep.transfer.stage import Staged, StagedPack

__all__ = ["close_gaps", "finish"]


def close_gaps(pack: StagedPack, kept: Sequence[Part]) -> list[Part]:
    """Move the kept chunks together behind the header's room; where each is then."""
    at = pack.layout.room
    moved: list[Part] = []
    address = ctypes.addressof(ctypes.c_ubyte.from_buffer(pack.image))
    for part in kept:
        if part.offset != at:
            ctypes.memmove(address + at, address + part.offset, part.length)
            part = part._replace(offset=at)  # noqa: PLW2901 - the same chunk at its new place
        moved.append(part)
        at += part.length
    return moved


def finish(staged: Staged, pack: StagedPack, parts: Sequence[Part]) -> memoryview:
    """Write the header of a pack that holds these chunks without gaps; the whole object's bytes."""
    room = pack.layout.room
    write_header(_entries(parts, staged.pieces, staged.shapes), pack.image[:room])
    return pack.image[: parts[-1].offset + parts[-1].length]


def _entries(
    parts: Sequence[Part], pieces: Sequence[Piece], shapes: Mapping[str, tuple[int, ...]]
) -> Iterator[PackEntry]:
    """An entry for each stretch of a piece that lies in one."""
    first = 0
    for number, part in enumerate(parts):
        after = parts[number + 1] if number + 1 < len(parts) else None
        if after is not None and after.piece == part.piece and after.start == part.start + part.length:
            continue
        piece = pieces[part.piece]
        yield pack_entry(
            piece.path,
            piece.dtype,
            shapes[piece.path],
            piece.box,
            start=parts[first].start,
            end=part.start + part.length,
        )
        first = number + 1
