"""Who of those that share pieces writes which: the one rule that saving and finding both go by."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from everstep.format.box import Box

__all__ = ["deal"]


def deal(pieces: Sequence[tuple[int, str, Box]], members: int) -> list[int]:
    """For each piece (bytes, path, box) which of so many members writes it, by the member's place among them.

    The largest first, each to the member with the fewest bytes so far, of these the first. No member gets more
    than the mean plus the largest piece. The order of ``pieces`` does not matter.
    """
    loads = [(0, member) for member in range(members)]
    dealt = [0] * len(pieces)
    for position in sorted(range(len(pieces)), key=lambda p: (-pieces[p][0], pieces[p][1], pieces[p][2])):
        load, member = loads[0]
        heapq.heapreplace(loads, (load + pieces[position][0], member))
        dealt[position] = member
    return dealt
