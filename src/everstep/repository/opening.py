"""Opening a store, and making a fresh one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from everstep.errors import AlreadyExists, ConditionIgnored, ObjectNotFound
from everstep.format.digests import ALGORITHM
from everstep.format.limits import FORMAT_MAJOR
from everstep.format.records import StoreRecord
from everstep.format.wire import to_bytes
from everstep.repository.keys import STORE_KEY
from everstep.repository.objects import create_same, read_record
from everstep.repository.repository import Repository
from everstep.repository.version import written_by
from everstep.store.protocol import Store

__all__ = ["check_condition", "open_repository", "random_hex"]


def random_hex(count: int) -> str:
    """As many random bytes, in hexadecimal: what ``secrets`` gives, without OpenSSL's 10 ms to import."""
    return os.urandom(count).hex()


def open_repository(
    store: Store,
    *,
    create: bool,
    clock: Callable[[], float] = time.time,
    entropy: Callable[[int], str] = random_hex,
) -> Repository:
    """Open a store; with ``create`` make a fresh one where there is none.

    Without ``create`` nothing is ever written. Raises `ObjectNotFound` when there is no store,
    `ConditionIgnored` when a fresh one does not refuse a second create, `UnsupportedFormat`.
    """
    record = _read(store) or (_make(store, clock, entropy) if create else None)
    if record is None:
        raise ObjectNotFound(
            f"{store.url} is no everstep store: it has no {STORE_KEY}",
            hint="check the URL; a store is made by the first run that saves to it",
            store=store.url,
        )
    return Repository(store=store, record=record, clock=clock, entropy=entropy)


def _read(store: Store) -> StoreRecord | None:
    try:
        return read_record(store, STORE_KEY, StoreRecord)
    except ObjectNotFound:
        return None


def _make(store: Store, clock: Callable[[], float], entropy: Callable[[int], str]) -> StoreRecord:
    ours, other = (
        StoreRecord(
            format=FORMAT_MAJOR, id=entropy(16), digest=ALGORITHM, created=clock(), version=written_by()
        )
        for _ in range(2)
    )
    try:
        create_same(store, STORE_KEY, to_bytes(ours))
    except AlreadyExists:
        return read_record(store, STORE_KEY, StoreRecord)  # another process was faster
    try:
        check_condition(store, STORE_KEY, to_bytes(other))
    except ConditionIgnored:
        store.delete(STORE_KEY)  # no half-made store is left in a place that cannot be one
        raise
    return ours


def check_condition(store: Store, key: str, other: bytes) -> None:
    """Write other bytes to a key that was just created, and raise `ConditionIgnored` unless it is refused.

    Some servers that speak a cloud's protocol ignore the condition and overwrite: on them two writers
    would both believe that they won. Only a key whose content nobody needs yet is put at risk.
    """
    try:
        store.create(key, other)
    except AlreadyExists:
        return
    raise ConditionIgnored(
        f"{store.url} overwrites an object that was to be created only if absent ({key})",
        hint="use a store that honours If-None-Match on PUT; behind a proxy or an emulator, check that it passes it on",
        key=key,
        store=store.url,
    )
