"""What of a state is a rank's own, and what all ranks have alike.

Below a ``per_rank`` or a ``stage`` container ranks have other leaves; all else is the same on every rank, and so
needs to be told once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from everstep.format.entries import Container, Entry

__all__ = ["OWN_TYPES", "own_entries", "own_roots", "shared_entries"]

OWN_TYPES: Final = frozenset({"per_rank", "stage"})


def own_entries(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """The outermost ``per_rank`` and ``stage`` containers with all that is below them, in order."""
    return tuple(entry for entry, own in _told(entries) if own)


def shared_entries(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """All else, and of the outermost ``per_rank`` and ``stage`` containers that they are there, and their type."""
    return tuple(
        replace(entry, keys=None, length=0, name="") if own and isinstance(entry, Container) else entry
        for entry, own in _told(entries, below=False)
    )


def own_roots(entries: Sequence[Entry]) -> dict[str, str]:
    """The outermost ``per_rank`` and ``stage`` containers: path and type."""
    return {
        entry.path: entry.type
        for entry, own in _told(entries, below=False)
        if own and isinstance(entry, Container)
    }


def _told(entries: Sequence[Entry], *, below: bool = True) -> Iterator[tuple[Entry, bool]]:
    """Each entry and whether it is a rank's own; what lies below an outermost container only if asked for."""
    inside: str | None = None
    for entry in entries:
        if inside is not None and entry.path.startswith(inside):
            if below:
                yield entry, True
            continue
        inside = None
        own = isinstance(entry, Container) and entry.type in OWN_TYPES
        if own:
            inside = f"{entry.path}/" if entry.path else ""
        yield entry, own
