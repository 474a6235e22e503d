"""The state copied into staging memory, in the form of the packs to come. Training goes on from here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from everstep.format.entries import Tensor
from everstep.format.limits import CHUNK_BYTES
from everstep.plan.save import SavePlan
from everstep.state.flat import Flat, Piece
from everstep.transfer.layout import Layout, PackLayout, lay_out, pack_bytes_for
from everstep.transfer.memory import Arena
from everstep.transfer.workers import default_workers, run_all

__all__ = ["Staged", "StagedPack", "stage"]

_SLICE = 8 * 2**20
_SMALL = 256 * 2**10


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedPack:
    """The image of one pack: room for a header, then its chunks without gaps."""

    layout: PackLayout
    image: memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A copy of what this rank writes. ``pieces`` are the plan's, without their bytes' sources being used again.

    ``shapes`` are those of whole tensors by path, ``nbytes`` the pieces' bytes. `release` it when nothing
    reads it any more; `upload` does so.
    """

    pieces: tuple[Piece, ...]
    shapes: dict[str, tuple[int, ...]]
    packs: tuple[StagedPack, ...]
    nbytes: int
    arena: Arena

    def release(self) -> None:
        """Let the next save have the memory; again is no error."""
        self.arena.release()


def stage(
    flat: Flat,
    plan: SavePlan,
    arena: Arena,
    *,
    chunk_bytes: int = CHUNK_BYTES,
    pack_bytes: int | None = None,
    workers: int | None = None,
) -> Staged:
    """Copy the pieces that the plan gives this rank; on return the live state may change.

    What lies contiguous in memory is copied by several threads that hold no lock of the interpreter, the
    rest by its source, and what a device still copies is waited for. ``pack_bytes`` is by
    default `pack_bytes_for` the size. Raises what a source raises; then nothing is staged.
    """
    pieces = tuple(flat.pieces[position] for position in plan.writes)
    shapes = {entry.path: entry.shape for entry in flat.entries if type(entry) is Tensor}
    views = [piece.source.view() if piece.nbytes else None for piece in pieces]
    layout = lay_out(
        pieces,
        shapes,
        chunk_bytes=chunk_bytes,
        pack_bytes=pack_bytes or pack_bytes_for(plan.nbytes),
        unparted=frozenset(position for position, view in enumerate(views) if view is None),
    )
    memory = arena.take(layout.size)
    try:
        _copy(flat, pieces, views, layout=layout, memory=memory, workers=workers or default_workers())
    except BaseException:
        arena.release()
        raise
    packs = tuple(
        StagedPack(layout=pack, image=memory[pack.base : pack.base + pack.end]) for pack in layout.packs
    )
    return Staged(pieces=pieces, shapes=shapes, packs=packs, nbytes=plan.nbytes, arena=arena)


def _copy(
    flat: Flat,
    pieces: Sequence[Piece],
    views: Sequence[memoryview | None],
    *,
    layout: Layout,
    memory: memoryview,
    workers: int,
) -> None:
    large: list[tuple[memoryview, memoryview]] = []
    parted: list[tuple[memoryview, memoryview]] = []
    for position, places in _by_piece(layout):
        piece, source = pieces[position], views[position]
        if source is None:
            if len(places) == 1:
                start, length = places[0]
                piece.source.copy_to(memory[start : start + length])
                continue
            source = memoryview(bytearray(piece.nbytes))  # over 4 GiB and not contiguous
            piece.source.copy_to(source)
            pairs = parted
        else:
            source = source.cast("B") if source.format != "B" or source.ndim != 1 else source
            pairs = large
        if source.nbytes != piece.nbytes:
            raise ValueError(f"{piece.path}: {source.nbytes} bytes in memory, {piece.nbytes} expected")
        done = 0
        for start, length in places:
            into, part = memory[start : start + length], source[done : done + length]
            if length < _SMALL and pairs is large:
                into[:] = part
            else:
                pairs += _sliced(into, part)
            done += length
    _copy_on_threads(large, workers)
    flat.synchronize()
    _copy_on_threads(parted, workers)


def _copy_on_threads(pairs: Sequence[tuple[memoryview, memoryview]], workers: int) -> None:
    import numpy as np  # noqa: PLC0415 - a tenth of a second that those who only read a list need not pay

    def copy(pair: tuple[memoryview, memoryview]) -> None:
        np.copyto(np.frombuffer(pair[0], np.uint8), np.frombuffer(pair[1], np.uint8))

    if pairs:
        run_all(pairs, copy, workers=min(workers, len(pairs)), name="everstep-stage")


def _by_piece(layout: Layout) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Each piece with its stretches of memory, (start, length); stretches that touch are one."""
    current = -1
    places: list[tuple[int, int]] = []
    for pack in layout.packs:
        for part in pack.parts:
            at = pack.base + part.offset
            if part.piece != current:
                if places:
                    yield current, places
                current, places = part.piece, [(at, part.length)]
            elif sum(places[-1]) == at:
                places[-1] = (places[-1][0], places[-1][1] + part.length)
            else:
                places.append((at, part.length))
    if places:
        yield current, places


def _sliced(into: memoryview, source: memoryview) -> Iterator[tuple[memoryview, memoryview]]:
    for start in range(0, into.nbytes, _SLICE):
        yield into[start : start + _SLICE], source[start : start + _SLICE]
