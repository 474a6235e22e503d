"""The bounds of what ranks tell each other in a save: announcement, outline, copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from everstep.format.announcement import Announcement
from everstep.format.check_entries import check_entries
from everstep.format.check_index import check_packs
from everstep.format.check_records import check_parent, check_record
from everstep.format.faults import Faults
from everstep.format.limits import MAX_INDEX_BYTES, MAX_NDIM, MAX_RANKS, MAX_TENSOR_BYTES
from everstep.format.outline import Claim, Outline
from everstep.format.replicas import Copies, Copy

__all__ = ["Word", "check_word"]

Word = Announcement | Outline | Copies
_MOST_BYTES: Final = 2**63 - 1


def check_word(word: Word, what: str = "word") -> None:
    """Every field within its bounds. Raises `InvalidManifest` naming the field."""
    faults = Faults(what)
    match word:
        case Announcement():
            check_record(word.plan, what)
            for n, base in enumerate(word.bases):
                check_parent(f"bases[{n}]", base, faults)
            faults.digest("digest", word.digest)
        case Outline():
            _check_outline(word, faults)
        case Copies():
            faults.count("rank", word.rank, MAX_RANKS - 1)
            _check_boxes(word.copies, "copies", faults)


def _check_outline(outline: Outline, faults: Faults) -> None:
    faults.run("run", outline.run)
    faults.save("save", outline.save)
    faults.count("world", outline.world, MAX_RANKS, 1)
    faults.count("rank", outline.rank, outline.world - 1)
    faults.digest("digest", outline.digest)
    faults.count("size", outline.size, MAX_INDEX_BYTES, 1)
    faults.digest("plan", outline.plan)
    check_packs(outline.packs, faults)
    check_entries(outline.entries, faults, own=outline.compact)
    faults.count("bytes", outline.bytes, _MOST_BYTES)
    faults.count("stored_bytes", outline.stored_bytes, _MOST_BYTES)
    for n, held in enumerate(outline.held):
        faults.count(f"held[{n}]", held, 2**64 - 1)
    _check_boxes(outline.claims, "claims", faults)
    for n, group in enumerate(outline.replicas):
        faults.digest(f"replicas[{n}].digest", group.digest)
        ranks = 0
        for first, count, step in group.runs:
            faults.count(f"replicas[{n}].runs", count, outline.world, 1)
            faults.count(f"replicas[{n}].runs", first, outline.world - 1)
            faults.count(f"replicas[{n}].runs", first + (count - 1) * step, outline.world - 1)
            ranks += count
        faults.count(f"replicas[{n}].runs", ranks, outline.world)


def _check_boxes(boxes: Sequence[Claim | Copy], field: str, faults: Faults) -> None:
    for n, box in enumerate(boxes):
        if len(box.offsets) != len(box.sizes) or len(box.sizes) > MAX_NDIM:
            raise faults.fail(f"{field}[{n}]", f"{box.offsets} + {box.sizes} is no box")
        for offset, size in zip(box.offsets, box.sizes, strict=True):
            faults.count(f"{field}[{n}].offsets", offset, MAX_TENSOR_BYTES)
            faults.count(f"{field}[{n}].sizes", size, MAX_TENSOR_BYTES)
        faults.digest(f"{field}[{n}]", box.content if isinstance(box, Claim) else box.digest)
