"""The one interface to storage: five verbs, and the promises every store keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Body", "Listed", "Store"]

Body = bytes | bytearray | memoryview
"""What can be written: contiguous bytes. They must not change until ``create`` returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One object in a list: its key, its size in bytes, its time by the store's clock (seconds since 1970)."""

    key: str
    size: int
    modified: float


class Store(Protocol):
    """Immutable objects under keys.

    Keys are relative and ``/``-separated, of the characters that every store keeps as they are
    (`everstep.store.keys.check_key`; other keys raise `InvalidName`); the store's own prefix is not part of
    them. No key lies under another: a local disk cannot have both ``a`` and ``a/b``. Reads and lists see
    every create that returned before they began. All verbs may be called from many threads. Errors are those
    of `everstep.errors`, with the key and no credential in them.
    """

    @property
    def url(self) -> str:
        """Where the store is, without credentials: for people and records."""
        ...

    def create(self, key: str, body: Body) -> None:
        """Make the object, whole and durable on return, if and only if the key is free.

        Raises `AlreadyExists` when the key is taken (perhaps by one's own lost answer: the caller reads
        back), `StoreFull`, `AccessDenied`, `StoreUnavailable`. Never overwrites. Nothing partial is ever
        visible under the key.
        """
        ...

    def get(self, key: str, limit: int) -> bytes:
        """The whole object, if it has at most ``limit`` bytes.

        Raises `ObjectNotFound`; `InvalidManifest` when it is larger, before reading it.
        """
        ...

    def get_range(self, key: str, start: int, into: memoryview) -> None:
        """Fill ``into`` (writable, contiguous, unsigned bytes) with the object's bytes from ``start`` on.

        Raises `ObjectNotFound`; `ShortRead` when the store answers with another number of bytes than
        ``len(into)``, the end of the object included. After an error the content of ``into`` is undefined.
        """
        ...

    def list(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """Every object whose key starts with ``prefix`` and is greater than ``after``, sorted, each once.

        Lazy: pages are asked for as they are needed.
        """
        ...

    def delete(self, key: str) -> None:
        """Make the key absent; a missing key is no error."""
        ...
