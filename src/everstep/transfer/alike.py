"""What this rank holds alike with other ranks, as digests: to find the one whose memory differs."""

from __future__ import annotations

from collections.abc import Mapping

from everstep.format.box import Box
from everstep.format.digests import Digest, digest_of
from everstep.format.replicas import Copy, copies
from everstep.state.flat import Flat, Piece
from everstep.transfer.workers import run_all

__all__ = ["Group", "held_alike"]

Group = tuple[int, ...] | None
"""The ranks that hold the same bytes; None: all ranks."""


def held_alike(flat: Flat, *, workers: int) -> Mapping[Group, tuple[Copy, ...]]:
    """By group of sharers, the digest of each box that this rank shares with others.

    Reads the live state: all of it that is replicated, at the speed of hashing (some GB/s on each of ``workers``
    threads), and the training must stand still meanwhile.
    """
    shared = [piece for piece in flat.pieces if piece.replicas is None or len(piece.replicas) > 1]
    digests: dict[int, Digest] = {}

    def work(task: tuple[int, Piece]) -> None:
        number, piece = task
        view = piece.source.view()
        if view is None:
            view = memoryview(bytearray(piece.nbytes))
            piece.source.copy_to(view)
            flat.synchronize()
        digests[number] = digest_of(view)

    run_all(list(enumerate(shared)), work, workers=workers, name="everstep-alike")
    groups: dict[Group, list[tuple[str, Box, Digest]]] = {}
    for number, piece in enumerate(shared):
        group = None if piece.replicas is None else tuple(sorted(piece.replicas))
        groups.setdefault(group, []).append((piece.path, piece.box, digests[number]))
    return {group: copies(held) for group, held in groups.items()}
