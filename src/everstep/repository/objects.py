"""Write-once objects: creating one so that a lost answer does no harm, and reading a record back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from everstep.errors import AlreadyExists, InvalidManifest, ObjectNotFound, StoreUnavailable
from everstep.format.check_records import Record
from everstep.format.limits import MAX_RECORD_BYTES
from everstep.format.wire import from_bytes
from everstep.store.protocol import Listed, Store

__all__ = ["create_mark", "create_same", "exists", "listed", "read_record"]

R = TypeVar("R", bound=Record)


def create_same(store: Store, key: str, body: bytes | bytearray) -> None:
    """Make the object; it is no error when it is there already with the same bytes.

    So an answer that was lost, or a request that was sent twice, ends well. Raises `AlreadyExists` when
    other bytes are there, and the store's error when it cannot be proved that these are.
    """
    try:
        store.create(key, body)
    except (AlreadyExists, StoreUnavailable) as error:
        if not _holds(store, key, body, error):
            raise AlreadyExists(f"{key} exists with other bytes in {store.url}", key=key) from error


def create_mark(store: Store, key: str, body: bytes) -> None:
    """Make an object that says all by being there; it is no error when it is, whatever its bytes.

    Raises the store's error when it cannot be proved that it is there.
    """
    try:
        store.create(key, body)
    except (AlreadyExists, StoreUnavailable):
        if not exists(store, key):
            raise


def _holds(store: Store, key: str, body: bytes | bytearray, error: Exception) -> bool:
    try:
        return store.get(key, len(body)) == body
    except ObjectNotFound:
        raise error from None
    except InvalidManifest:
        return False  # larger than ours


def exists(store: Store, key: str) -> bool:
    """Whether a small object is there, whatever its bytes."""
    try:
        store.get(key, MAX_RECORD_BYTES)
    except ObjectNotFound:
        return False
    except InvalidManifest:
        return True  # too large for a record, and there
    return True


def read_record(store: Store, key: str, kind: type[R]) -> R:
    """The record under ``key``. Raises `ObjectNotFound`, or an `IntegrityError` naming the key."""
    return from_bytes(store.get(key, MAX_RECORD_BYTES), kind, what=key)


def listed(store: Store, prefix: str, after: str = "") -> Iterator[Listed]:
    """Every object under a prefix once, in order, also when the store repeats a page of the list."""
    last = after
    for found in store.list(prefix, after):
        if found.key > last:
            last = found.key
            yield found
