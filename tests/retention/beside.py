"""Stores in which another process does something at a chosen moment."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from everstep.store.protocol import Store

__all__ = ["Before", "Beside"]


class Before:
    """A store that does something once, before a key that begins so is created."""

    def __init__(self, inner: Store, prefix: str, action: Callable[[], object]) -> None:
        self._inner = inner
        self.url = inner.url
        self.get, self.get_range, self.list, self.delete = (
            inner.get,
            inner.get_range,
            inner.list,
            inner.delete,
        )
        self._prefix = prefix
        self._action = action

    def create(self, key, body):
        if self._action and key.startswith(self._prefix):
            action, self._action = self._action, None
            action()
        self._inner.create(key, body)


class Beside:
    """A store that does something once, after the call of this number."""

    def __init__(self, inner: Store, at: int, action: Callable[[], object]) -> None:
        self._inner = inner
        self._left = at
        self._action = action
        self.url = inner.url

    def create(self, key, body):
        with self._counted():
            self._inner.create(key, body)

    def get(self, key, limit):
        with self._counted():
            return self._inner.get(key, limit)

    def get_range(self, key, start, into):
        with self._counted():
            self._inner.get_range(key, start, into)

    def list(self, prefix, after=""):
        with self._counted():
            return iter(list(self._inner.list(prefix, after)))

    def delete(self, key):
        with self._counted():
            self._inner.delete(key)

    @contextlib.contextmanager
    def _counted(self):
        try:
            yield
        finally:
            self._left -= 1
            if self._left == 0:
                self._action()
