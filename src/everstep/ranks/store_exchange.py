"""The exchange through the checkpoint store itself: for ranks that have nothing else in common."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Protocol

from everstep.errors import AlreadyExists, EverstepError, InvalidName, ObjectNotFound

__all__ = ["Objects", "StoreExchange"]

_LIMIT = 2**20
_KEY = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")


class Objects(Protocol):
    """What is asked of the checkpoint store: three of its verbs."""

    def create(self, key: str, body: bytes) -> None:
        """Make the object if the key is free, else raise `AlreadyExists`."""
        ...

    def get(self, key: str, limit: int) -> bytes:
        """The object, of at most ``limit`` bytes, or raise `ObjectNotFound`."""
        ...

    def delete(self, key: str) -> None:
        """Make the key absent."""
        ...


class StoreExchange:
    """Small objects under ``runs/<run>/exchange/<launch>/``, which all ranks can reach and nobody else reads.

    ``launch`` must be equal on all ranks and new with each launch, ``poll_s`` is what a cloud can bear:
    each question is a request. A launch leaves some small objects there, of no use after it, until the run's folder is
    cleaned.
    Raises `InvalidName` for a run, a launch or a key that cannot be part of a key.
    """

    def __init__(self, store: Objects, *, run: str, launch: str, poll_s: float = 1.0) -> None:
        for name in (run, launch):
            if "/" in name:
                raise _invalid(name)
        self._prefix = f"runs/{_checked(run)}/exchange/{_checked(launch)}/"
        self._store = store
        self._poll_s = poll_s

    @property
    def poll_s(self) -> float:
        """Seconds between two questions."""
        return self._poll_s

    def put(self, key: str, value: bytes) -> None:
        """One create; a key that is taken stays as it is."""
        with suppress(AlreadyExists):
            self._store.create(self._prefix + _checked(key), value)

    def find(self, key: str) -> bytes | None:
        """One get."""
        try:
            return self._store.get(self._prefix + _checked(key), _LIMIT)
        except ObjectNotFound:
            return None

    def forget(self, key: str) -> None:
        """One delete; what cannot be deleted now is left, small and unread."""
        with suppress(EverstepError):
            self._store.delete(self._prefix + _checked(key))

    def close(self) -> None:
        """The store is not ours to close."""


def _checked(key: str) -> str:
    if not _KEY.fullmatch(key) or ".." in key or key.endswith(".") or "./" in key:
        raise _invalid(key)
    return key


def _invalid(key: str) -> InvalidName:
    return InvalidName(
        f"{key!r} cannot be part of a key of the exchange between ranks",
        hint="use letters, digits and -._, not beginning or ending with a dot",
        key=key,
    )
