"""Which bytes of which packs a set of indexes refers to, each once, in ranges worth a request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from everstep.errors import ObjectNotFound, ShortRead
from everstep.format.digests import digest_of
from everstep.format.index import Index
from everstep.store.protocol import Store

__all__ = ["Place", "Span", "Use", "check_span", "places", "spans"]

_SPAN_BYTES = 16 * 2**20
_GAP_BYTES = 64 * 2**10


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """The bytes of a chunk in a pack, and the digest they must have."""

    offset: int
    length: int
    digest: str

    @property
    def end(self) -> int:
        """The byte after the last."""
        return self.offset + self.length


@dataclass(frozen=True, slots=True)
class Use:
    """A leaf of a rank that needs a chunk."""

    rank: int
    path: str


@dataclass(frozen=True, slots=True)
class Span:
    """Neighbouring chunks of one pack, read by one request."""

    key: str
    places: tuple[Place, ...]

    @property
    def offset(self) -> int:
        """Where it begins in the pack."""
        return self.places[0].offset

    @property
    def length(self) -> int:
        """Its bytes, the gaps between its chunks included."""
        return max(place.end for place in self.places) - self.offset


def places(indexes: Sequence[Index]) -> dict[str, dict[Place, list[Use]]]:
    """By pack, the chunks that the indexes refer to, each with the leaves that need it."""
    found: dict[str, dict[Place, list[Use]]] = {}
    for index in indexes:
        for key in index.packs:
            found.setdefault(key, {})
        for shard in index.shards:
            use = Use(index.rank, shard.path)
            for chunk in shard.chunks:
                place = Place(chunk.offset, chunk.length, chunk.digest)
                uses = found[index.packs[chunk.pack]].setdefault(place, [])
                if use not in uses:
                    uses.append(use)
    return found


def spans(packs: Mapping[str, Mapping[Place, object]]) -> Iterator[Span]:
    """The chunks in the order of their bytes, joined while a range stays within 16 MiB."""
    for key, found in packs.items():
        near: list[Place] = []
        for place in sorted(found):
            if near and (
                place.end - near[0].offset > _SPAN_BYTES or place.offset > near[-1].end + _GAP_BYTES
            ):
                yield Span(key, tuple(near))
                near = []
            near.append(place)
        if near:
            yield Span(key, tuple(near))


def check_span(store: Store, span: Span, room: memoryview) -> Iterator[tuple[Place, str, str]]:
    """Read a span into ``room``; what is wrong with which of its chunks: the kind of damage, and words.

    When the range cannot be read as a whole, each chunk is tried on its own.
    """
    into = room[: span.length]
    try:
        store.get_range(span.key, span.offset, into)
    except ObjectNotFound:
        yield from ((place, "missing", "the pack is gone") for place in span.places)
    except ShortRead as error:
        if len(span.places) == 1:
            yield span.places[0], "short", error.message
            return
        for place in span.places:
            yield from check_span(store, Span(span.key, (place,)), room)
    else:
        for place in span.places:
            at = place.offset - span.offset
            found = digest_of(into[at : at + place.length])
            if found != place.digest:
                yield place, "corrupt", f"the chunk's digest is {found} instead of {place.digest}"
