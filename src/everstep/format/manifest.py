"""The list of a save's indexes and the state's global shape. Made from the plan and the indexes alone,
so that every rank that makes it makes the same bytes.
"""

from __future__ import annotations

import msgspec

from everstep.format.entries import Entry
from everstep.format.index import Meta
from everstep.format.records import Parent

__all__ = ["IndexRef", "Manifest"]


class IndexRef(msgspec.Struct, frozen=True, array_like=True):
    """One rank's index, by digest and size; its key follows from them."""

    rank: int
    digest: str
    size: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A whole checkpoint.

    ``entries`` is the union of the indexes' entries. ``packs`` are the keys of all packs that any index
    refers to, sorted: what a sweep must keep. ``created`` is the plan's time (seconds since 1970).
    ``forked_from`` is set in the first checkpoint of a fork.
    """

    format: int
    run: str
    save: str
    world: int
    created: float
    indexes: tuple[IndexRef, ...]
    entries: tuple[Entry, ...]
    packs: tuple[str, ...]
    meta: Meta
    bytes: int
    stored_bytes: int
    forked_from: Parent | None = None
