"""Chunks that lie near each other in a pack, read by one request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from everstep.plan.requests import ChunkRead, Read

__all__ = ["MAX_GAP", "MAX_READ", "joined"]

MAX_READ: Final = 16 * 2**20
MAX_GAP: Final = 512 * 2**10
_WASTE: Final = 32
"""Bytes read for nothing are at most this part of those that are needed."""

_Piece = tuple[str, int, int, list[ChunkRead]]


def joined(
    chunks: Iterable[tuple[str, ChunkRead]], *, max_read: int = MAX_READ, max_gap: int = MAX_GAP
) -> tuple[Read, ...]:
    """The reads of these chunks, given with the keys of their packs, in few requests.

    A read has at most ``max_read`` bytes, or one chunk. Between two chunks of a read at most ``max_gap`` bytes are
    read for nothing, and in all reads together at most 1/32 of what is needed: the smallest gaps first,
    which saves the most requests. Reads come in the order of the wanted boxes they serve first.
    """
    ordered = sorted(
        chunks, key=lambda found: (found[0], found[1].chunk.offset, found[1].path, found[1].start)
    )
    pieces = _touching(ordered, max_read)
    bridged = _bridged(pieces, max_gap)
    reads: list[tuple[int, Read]] = []
    run: list[ChunkRead] = []
    key, start, end = "", 0, 0

    def close() -> None:
        if run:
            first = min(chunk.wanted[0] for chunk in run)
            reads.append((first, Read(key=key, offset=start, length=end - start, chunks=tuple(run))))

    for number, (pack, low, high, found) in enumerate(pieces):
        if run and number in bridged and high - start <= max_read:
            run += found
            end = max(end, high)
        else:
            close()
            run, key, start, end = list(found), pack, low, high
    close()
    reads.sort(key=lambda read: (read[0], read[1].key, read[1].offset))
    return tuple(read for _, read in reads)


def _touching(ordered: Sequence[tuple[str, ChunkRead]], max_read: int) -> list[_Piece]:
    """Runs of chunks without gaps, (key, start, end, chunks); of at most ``max_read`` bytes, or one chunk."""
    pieces: list[_Piece] = []
    key, start, end = "", 0, -1
    run: list[ChunkRead] = []
    for pack, read in ordered:
        low = read.chunk.offset
        high = low + read.chunk.length
        if run and pack == key and low <= end and max(high, end) - start <= max_read:
            run.append(read)
            end = max(end, high)
            continue
        if run:
            pieces.append((key, start, end, run))
        run, key, start, end = [read], pack, low, high
    if run:
        pieces.append((key, start, end, run))
    return pieces


def _bridged(pieces: Sequence[_Piece], max_gap: int) -> set[int]:
    """The numbers of the pieces that are read together with the one before."""
    gaps = [
        (gap, number)
        for number in range(1, len(pieces))
        if pieces[number][0] == pieces[number - 1][0]
        and (gap := pieces[number][1] - pieces[number - 1][2]) <= max_gap
    ]
    left = sum(end - start for _, start, end, _ in pieces) // _WASTE
    bridged: set[int] = set()
    for gap, number in sorted(gaps):
        if gap > left:
            break
        left -= max(0, gap)
        bridged.add(number)
    return bridged
