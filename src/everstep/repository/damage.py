"""What verify and copy find."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Damage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """One leaf that cannot be read as it was written, and where; or a damaged object, with an empty ``path``.

    ``what`` is missing (the object is gone), corrupt (another digest), short (the object ends too early),
    header (a pack's beginning; everstep does not need it, other readers do), index, manifest, record, or
    incomplete (no index that can be read says where all of the leaf is). ``offset`` and ``length`` are
    bytes of the object ``key``; ``rank`` is the rank whose index refers to them, -1 when there is none.
    """

    what: str
    path: str
    rank: int
    key: str
    offset: int
    length: int
    error: str

    def __str__(self) -> str:
        leaf = f"leaf {self.path!r} of rank {self.rank}: " if self.path else ""
        return f"{leaf}{self.key} at byte {self.offset}: {self.error}"
