"""Where each chunk goes: packs of about equal size, chunks without gaps, room for the header in front."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from everstep.format.limits import CHUNK_BYTES
from everstep.format.packs import PAGE, entry_room, header_room
from everstep.state.flat import Piece

__all__ = ["Layout", "PackLayout", "Part", "lay_out", "pack_bytes_for"]

_SMALLEST = 64 * 2**20
_LARGEST = 4 * 2**30
_PUTS = 20
_HEADER = 16 * 2**20


class Part(NamedTuple):
    """One chunk of a piece: ``length`` bytes from byte ``start`` of ``pieces[piece]``, at ``offset`` of the pack."""

    piece: int
    start: int
    length: int
    offset: int


class PackLayout(NamedTuple):
    """One pack: where its image begins in the staging memory, the room for its header, its end, its chunks.

    ``end`` counts from the beginning of the pack.
    """

    base: int
    room: int
    end: int
    parts: list[Part]


class Layout(NamedTuple):
    """All packs of a save, and how much staging memory they take."""

    packs: list[PackLayout]
    size: int


def pack_bytes_for(nbytes: int) -> int:
    """How large the packs of a save of ``nbytes`` become: 64 MiB, larger where that would be many more than 20.

    One object is made by one request, which clouds bound at about 5 GB: 4 GiB at most.
    """
    return min(_LARGEST, max(_SMALLEST, -(-nbytes // _PUTS) + CHUNK_BYTES))


def lay_out(
    pieces: Sequence[Piece],
    shapes: dict[str, tuple[int, ...]],
    *,
    chunk_bytes: int,
    pack_bytes: int,
    unparted: frozenset[int] = frozenset(),
) -> Layout:
    """Chunks of the pieces in order, packed until a pack has ``pack_bytes`` or the next chunk would not fit.

    ``shapes`` are those of whole tensors by path. Pieces without bytes have no chunks. The chunks of pieces
    at the positions ``unparted`` stay in one pack, which grows for them up to 4 GiB.
    """
    packs: list[PackLayout] = []
    base = 0
    for parts, header in _dealt(pieces, shapes, chunk_bytes, pack_bytes, unparted):
        room = header_room(header)
        placed = [Part(part[0], part[1], part[2], part[3] + room) for part in parts]
        end = placed[-1].offset + placed[-1].length
        packs.append(PackLayout(base, room, end, placed))
        base += -(-end // PAGE) * PAGE
    return Layout(packs, base)


def _dealt(
    pieces: Sequence[Piece],
    shapes: dict[str, tuple[int, ...]],
    chunk_bytes: int,
    pack_bytes: int,
    unparted: frozenset[int],
) -> Iterable[tuple[list[Part], int]]:
    """The parts of each pack, offsets counted from behind the header, and the most bytes of its entries."""
    parts: list[Part] = []
    header = at = 0
    for position, piece in enumerate(pieces):
        nbytes = piece.nbytes
        if not nbytes:
            continue
        entry = entry_room(piece.path, piece.dtype, shapes[piece.path], piece.box)
        whole = position in unparted and nbytes <= _LARGEST
        for start in range(0, nbytes, chunk_bytes):
            length = min(chunk_bytes, nbytes - start)
            full = at + (nbytes if whole else length) > pack_bytes or header > _HEADER
            if parts and full and not (whole and start):
                yield parts, header
                parts, header, at = [], 0, 0
            parts.append(Part(position, start, length, at))
            header += entry
            at += length
    if parts:
        yield parts, header
