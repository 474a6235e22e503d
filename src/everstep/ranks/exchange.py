"""The small key-value exchange between the ranks of one launch: what they tell each other, without collectives."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Exchange"]


class Exchange(Protocol):
    """Keys and small values that all ranks of one launch see.

    The first value of a key wins and never changes. Keys are parts of letters, digits and ``-._``, joined by
    ``/``; no key lies under another one. A value has at most 512 KiB. No call waits for another rank. Calls may
    come from several threads of a process. Errors of the network are `StoreUnavailable`; its field ``rank`` is
    there when it is known whose process is gone.
    """

    @property
    def poll_s(self) -> float:
        """How many seconds to wait between two questions for the same key, at least."""
        ...

    def put(self, key: str, value: bytes) -> None:
        """Make a value visible to all ranks, if nobody has put that key; else change nothing."""
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
