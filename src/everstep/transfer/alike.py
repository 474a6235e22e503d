"""What this rank holds alike with other ranks, as digests: to find the one whose memory differs."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from everstep.format.box import Box
from everstep.format.digests import Digest, digest_of
from everstep.format.entries import Tensor
from everstep.format.replicas import Copy, copies
from everstep.state.flat import Flat, Piece
from everstep.transfer.workers import run_all

__all__ = ["Alike", "Group", "held_alike", "sampled_alike"]

Group = tuple[int, ...] | None
"""The ranks that hold the same bytes; None: all ranks."""

Alike = Callable[[], Mapping[Group, tuple[Copy, ...]]]
"""Gives, by group of sharers, the digest of each box that this rank shares with others; the state may have changed."""

_SAMPLE_BYTES: Final = 256
_COPIED_BYTES: Final = 64 * 2**10
_COPIED_PART: Final = 16


def held_alike(flat: Flat, *, workers: int) -> Alike:
    """Digests of everything that is replicated.

    Reads the live state now, at the speed of hashing (some GB/s on each of ``workers`` threads), and the training
    must stand still meanwhile.
    """
    shared = [piece for piece in flat.pieces if _is_shared(piece)]
    digests: dict[int, Digest] = {}

    def work(task: tuple[int, Piece]) -> None:
        number, piece = task
        view = piece.source.view()
        digests[number] = digest_of(_copied(flat, piece) if view is None else view)

    run_all(list(enumerate(shared)), work, workers=workers, name="everstep-alike")
    grouped = _grouped((piece, digests[number]) for number, piece in enumerate(shared))
    return lambda: grouped


def sampled_alike(flat: Flat) -> Alike:
    """Digests of the first bytes of parameters that are replicated: what finds ranks that never were in step.

    Parameters alone, because other state may differ and be meant to (batch statistics under data parallelism).
    Where they do not lie in this machine's memory, a sixteenth of the small ones is copied. Takes microseconds
    for each parameter; the digests are made later, when they are asked for.
    """
    parameters = {
        entry.path for entry in flat.entries if isinstance(entry, Tensor) and entry.extra.get("parameter")
    }
    samples: list[tuple[Piece, bytes]] = []
    for piece in flat.pieces:
        if piece.path not in parameters or not _is_shared(piece):
            continue
        view = piece.source.view()
        if (
            view is None
            and piece.nbytes <= _COPIED_BYTES
            and not zlib.crc32(piece.path.encode()) % _COPIED_PART
        ):
            view = memoryview(_copied(flat, piece))
        if view is not None:
            samples.append((piece, bytes(view[:_SAMPLE_BYTES])))
    return lambda: _grouped((piece, digest_of(sample)) for piece, sample in samples)


def _is_shared(piece: Piece) -> bool:
    return piece.replicas is None or len(piece.replicas) > 1


def _copied(flat: Flat, piece: Piece) -> bytearray:
    body = bytearray(piece.nbytes)
    piece.source.copy_to(memoryview(body))
    flat.synchronize()
    return body


def _grouped(digests: Iterable[tuple[Piece, Digest]]) -> Mapping[Group, tuple[Copy, ...]]:
    groups: dict[Group, list[tuple[str, Box, Digest]]] = {}
    for piece, digest in digests:
        group = None if piece.replicas is None else tuple(sorted(piece.replicas))
        groups.setdefault(group, []).append((piece.path, piece.box, digest))
    return {group: copies(held) for group, held in groups.items()}
