"""The small key-value exchange between the ranks of one launch: what they tell each other, without collectives."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Exchange"]


class Exchange(Protocol):
    """Keys and small values that all ranks of one launch see.

    A key is put once, by one rank, and never changes. No call waits for another rank. Calls may come
    from several threads of a process. Errors of the network are `StoreUnavailable`.
    """

    @property
    def poll_s(self) -> float:
        """How many seconds to wait between two questions for the same key, at least."""
        ...

    def put(self, key: str, value: bytes) -> None:
        """Make a value visible to all ranks. Putting the same value again changes nothing."""
        ...

    def find(self, key: str) -> bytes | None:
        """The value of a key, or None when nobody has put it yet."""
        ...

    def forget(self, key: str) -> None:
        """Remove a key that nobody will ask for again. Best effort: it may stay."""
        ...

    def close(self) -> None:
        """Let connections go."""
        ...
