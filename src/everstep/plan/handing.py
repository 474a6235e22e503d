"""Which rank of a node fetches what several of its ranks want."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from everstep.plan.joining import MAX_READ, joined
from everstep.plan.requests import ChunkRead, Read

__all__ = ["Unit", "Wish", "arrange", "by_key_of", "hand_out", "unit_at", "wish_of"]

_LEAST: Final = 2**20
_UNITS_EACH: Final = 8
"""Each rank should have so many units to fetch, so that bytes can be dealt evenly."""


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """The chunks that a rank wants: keys of packs, and (number of the key, offset, length)."""

    keys: tuple[str, ...]
    ranges: tuple[tuple[int, int, int], ...]


class Unit(msgspec.Struct, frozen=True, array_like=True):
    """Neighbouring chunks that the same ranks want: ``fetcher``, one of them, reads them for all ``takers``.

    ``takers`` are the others. ``round`` says when: what is fetched in one round is taken before much of a
    later one is fetched, so that the memory for bytes on their way is bounded.
    """

    key: str
    offset: int
    length: int
    fetcher: int
    takers: tuple[int, ...]
    round: int


def wish_of(reads: Sequence[Read]) -> Wish:
    """The chunks of a rank's reads."""
    keys: dict[str, int] = {}
    ranges = {
        (keys.setdefault(read.key, len(keys)), chunk.chunk.offset, chunk.chunk.length): None
        for read in reads
        for chunk in read.chunks
    }
    return Wish(keys=tuple(keys), ranges=tuple(ranges))


def hand_out(wishes: Mapping[int, Wish], *, round_bytes: int) -> tuple[Unit, ...]:
    """The units that two or more ranks want, dealt among these by bytes, those that a rank wants alone counted.

    In the order of rounds, and in each by pack and offset. In a round no rank fetches more than ``round_bytes``;
    a chunk longer than that is in no unit. Equal arguments give equal units. Time is O(chunks), without
    the logarithms of sorting.
    """
    wanting: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for rank in sorted(wishes):
        wish = wishes[rank]
        for key, offset, length in wish.ranges:
            wanting[wish.keys[key], offset, length].append(rank)
    loads = dict.fromkeys(wishes, 0)
    shared: dict[tuple[str, int, int], tuple[int, ...]] = {}
    for place, ranks in wanting.items():
        if len(ranks) > 1 and place[2] <= round_bytes:
            shared[place] = tuple(ranks)
        else:
            for rank in ranks:
                loads[rank] += place[2]
    total = sum(length for _, _, length in shared)
    most = min(MAX_READ, round_bytes, max(_LEAST, total // (_UNITS_EACH * len(wishes) or 1)))
    return _dealt(_neighbours(shared, most), loads, round_bytes)


_Stretch = tuple[str, int, int, tuple[int, ...]]


def _neighbours(shared: Mapping[tuple[str, int, int], tuple[int, ...]], most: int) -> list[_Stretch]:
    """Chunks that follow each other and are wanted by the same ranks, as (key, start, end, ranks)."""
    found: list[_Stretch] = []
    for (key, offset, length), ranks in sorted(shared.items()):
        if found:
            last, start, end, same = found[-1]
            if last == key and end == offset and same == ranks and offset + length - start <= most:
                found[-1] = (key, start, offset + length, ranks)
                continue
        found.append((key, offset, offset + length, ranks))
    return found


def _dealt(stretches: Sequence[_Stretch], loads: dict[int, int], round_bytes: int) -> tuple[Unit, ...]:
    """Each stretch to the least loaded of the ranks that want it; a heap for each group of ranks."""
    units: list[Unit] = []
    heaps: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    now = 0
    fetched = dict.fromkeys(loads, 0)
    for key, start, end, ranks in stretches:
        heap = heaps.get(ranks)
        if heap is None:
            heap = heaps[ranks] = [(loads[rank], rank) for rank in ranks]
            heapq.heapify(heap)
        while heap[0][0] != loads[heap[0][1]]:  # it got something as a member of another group
            heapq.heapreplace(heap, (loads[heap[0][1]], heap[0][1]))
        rank = heap[0][1]
        length = end - start
        if fetched[rank] + length > round_bytes:
            now += 1
            fetched = dict.fromkeys(loads, 0)
        fetched[rank] += length
        loads[rank] += length
        heapq.heapreplace(heap, (loads[rank], rank))
        units.append(Unit(key, start, length, rank, tuple(other for other in ranks if other != rank), now))
    return tuple(units)


def arrange(reads: Sequence[Read], units: Sequence[Unit], rank: int) -> tuple[Read, ...]:
    """One rank's reads cut at the units and put in order: what it fetches for a round, then what it takes.

    A round is fetched before that before is taken, so that nobody waits for nothing, and what waits for another
    rank waits only for a round that comes before it in everyone's order: so no two ranks ever wait for each
    other. What a rank wants alone comes before the last round is taken, when nobody waits for this rank.
    """
    mine = [unit for unit in units if unit.fetcher == rank or rank in unit.takers]
    if not mine:
        return tuple(reads)
    by_key = by_key_of(mine)
    inside: dict[int, list[ChunkRead]] = defaultdict(list)
    alone: list[tuple[str, ChunkRead]] = []
    for read in reads:
        for chunk in read.chunks:
            found = unit_at(by_key, read.key, chunk.chunk.offset, chunk.chunk.length)
            if found is None:
                alone.append((read.key, chunk))
            else:
                inside[id(found)].append(chunk)
    fetches: dict[int, list[Read]] = defaultdict(list)
    takes: dict[int, list[Read]] = defaultdict(list)
    for unit in mine:
        chunks = sorted(inside[id(unit)], key=lambda chunk: (chunk.chunk.offset, chunk.path, chunk.start))
        if chunks:
            read = Read(key=unit.key, offset=unit.offset, length=unit.length, chunks=tuple(chunks))
            (fetches if unit.fetcher == rank else takes)[unit.round].append(read)
    last = max(unit.round for unit in mine)
    ordered: list[Read] = list(fetches[0])
    for n in range(last + 1):
        ordered += fetches[n + 1]
        ordered += joined(alone) if n == last else ()
        ordered += takes[n]
    return tuple(ordered)


def by_key_of(units: Sequence[Unit]) -> dict[str, tuple[list[int], list[Unit]]]:
    """For each pack where its units begin, and the units, for `unit_at`."""
    found: dict[str, tuple[list[int], list[Unit]]] = {}
    for unit in sorted(units, key=lambda unit: (unit.key, unit.offset)):
        starts, there = found.setdefault(unit.key, ([], []))
        starts.append(unit.offset)
        there.append(unit)
    return found


def unit_at(
    by_key: Mapping[str, tuple[Sequence[int], Sequence[Unit]]], key: str, offset: int, length: int
) -> Unit | None:
    """The unit that contains these bytes of a pack."""
    starts, units = by_key.get(key, ((), ()))
    number = bisect_right(starts, offset) - 1
    if number < 0 or offset + length > units[number].offset + units[number].length:
        return None
    return units[number]
