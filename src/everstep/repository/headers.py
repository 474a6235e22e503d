"""The beginning of a pack, which everstep itself does not need: it makes the pack a safetensors file."""

from __future__ import annotations

from everstep.errors import IntegrityError, ObjectNotFound, ShortRead
from everstep.format.limits import MAX_PACK_HEADER_BYTES
from everstep.format.packs import parse_header
from everstep.repository.damage import Damage
from everstep.store.protocol import Store

__all__ = ["check_header", "header_end", "size_of"]

_LENGTH_BYTES = 8
_FIRST_BYTES = 4096


def size_of(store: Store, key: str) -> int | None:
    """The bytes of an object, by a list; None when it is not there."""
    found = next(iter(store.list(key)), None)
    return found.size if found is not None and found.key == key else None


def header_end(head: bytes | bytearray) -> int:
    """Where a pack's data begins, as its first bytes claim, within what a reader allows."""
    return min(_LENGTH_BYTES + int.from_bytes(head[:_LENGTH_BYTES], "little"), MAX_PACK_HEADER_BYTES)


def check_header(store: Store, key: str) -> Damage | None:
    """What is wrong with a pack's header or its size; None when they agree.

    A pack that is gone is no matter here: each leaf that needs it is listed by itself.
    """
    size = size_of(store, key)
    if size is None:
        return None
    try:
        head = bytearray(min(size, _FIRST_BYTES))
        store.get_range(key, 0, memoryview(head))
        room = header_end(head)
        if len(head) < room <= size:
            head = bytearray(room)
            store.get_range(key, 0, memoryview(head))
        parse_header(bytes(head), size, what=key)
    except ObjectNotFound:
        return None
    except (IntegrityError, ShortRead) as error:
        return Damage(
            what="header", path="", rank=-1, key=key, offset=0, length=_FIRST_BYTES, error=error.message
        )
    return None
