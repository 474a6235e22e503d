"""A store that is only looked at: for dry runs."""

from __future__ import annotations

from collections.abc import Iterator

from everstep.errors import StoreUnavailable
from everstep.store.protocol import Body, Listed, Store

__all__ = ["Unchanged"]


class Unchanged:
    """Reads go to the inner store; creating and deleting raise `StoreUnavailable`, which best effort passes over."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    @property
    def url(self) -> str:
        """The inner store's."""
        return self._inner.url

    def create(self, key: str, body: Body) -> None:
        """Refused."""
        del body
        raise _refused(key)

    def get(self, key: str, limit: int) -> bytes:
        """As the inner store's."""
        return self._inner.get(key, limit)

    def get_range(self, key: str, start: int, into: memoryview) -> None:
        """As the inner store's."""
        self._inner.get_range(key, start, into)

    def list(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """As the inner store's."""
        return self._inner.list(prefix, after)

    def delete(self, key: str) -> None:
        """Refused."""
        raise _refused(key)


def _refused(key: str) -> StoreUnavailable:
    return StoreUnavailable(f"a dry run changes nothing, and so not {key}", key=key)
