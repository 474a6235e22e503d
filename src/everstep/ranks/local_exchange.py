"""The exchange of ranks that are threads of one process, and of a rank that is alone: a dictionary."""

from __future__ import annotations

__all__ = ["LocalExchange"]


class LocalExchange:
    """Keys and values in this process's memory. All ranks use the same object; closing it does nothing."""

    def __init__(self, *, poll_s: float = 0.01) -> None:
        self._poll_s = poll_s
        self._values: dict[str, bytes] = {}

    @property
    def poll_s(self) -> float:
        """Seconds between two questions."""
        return self._poll_s

    def put(self, key: str, value: bytes) -> None:
        """Keep the value, if the key is free; one bytecode of the interpreter, so that threads cannot both win."""
        self._values.setdefault(key, bytes(value))

    def find(self, key: str) -> bytes | None:
        """The value, or None."""
        return self._values.get(key)

    def forget(self, key: str) -> None:
        """Remove the key."""
        self._values.pop(key, None)

    def close(self) -> None:
        """Nothing is open."""
