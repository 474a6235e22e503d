"""An index again, for another run or save: the same leaves in the same packs."""

from __future__ import annotations

from msgspec.structs import replace

from everstep.errors import UnsupportedFormat
from everstep.format.digests import digest_of
from everstep.format.index import Index
from everstep.format.manifest import IndexRef
from everstep.format.wire import to_bytes

__all__ = ["retitled"]


def retitled(index: Index, ref: IndexRef, *, run: str, save: str, stored_bytes: int) -> Index:
    """The index of another save. ``ref`` is what the index was read by.

    Raises `UnsupportedFormat` when the index says things that this version does not know: they would be lost.
    """
    if digest_of(to_bytes(index)) != ref.digest:
        raise UnsupportedFormat(
            f"the index of rank {index.rank} of {index.run} {index.save} was written by a newer version",
            hint="copy or fork it with the version of everstep that wrote it",
            run=index.run,
            save=index.save,
            rank=index.rank,
        )
    return replace(index, run=run, save=save, stored_bytes=stored_bytes)
