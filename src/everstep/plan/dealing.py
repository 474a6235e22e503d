"""Who of those that share pieces writes which: the one rule that saving and finding both go by."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Final

from everstep.format.box import Box

__all__ = ["SMALL_BYTES", "deal"]

SMALL_BYTES: Final = 64 * 2**10
"""Smaller pieces are the first member's: the buffers that a rank keeps on its own (batch statistics under data
parallelism, which begins each forward pass with rank 0's) are then all of one rank, and that is rank 0."""


def deal(pieces: Sequence[tuple[int, str, Box]], members: int) -> list[int]:
    """For each piece (bytes, path, box) which of so many members writes it, by the member's place among them.

    Those below `SMALL_BYTES` are the first's. Then the largest first, each to the member with the fewest bytes so
    far, of these the first: of these pieces no member gets more than the mean plus the largest. The order of
    ``pieces`` does not matter.
    """
    small = sum(nbytes for nbytes, _, _ in pieces if nbytes < SMALL_BYTES)
    loads = [(small if member == 0 else 0, member) for member in range(members)]
    heapq.heapify(loads)
    dealt = [0] * len(pieces)
    for position in sorted(range(len(pieces)), key=lambda p: (-pieces[p][0], pieces[p][1], pieces[p][2])):
        if pieces[position][0] < SMALL_BYTES:
            break
        load, member = loads[0]
        heapq.heapreplace(loads, (load + pieces[position][0], member))
        dealt[position] = member
    return dealt
