"""Values of any length in an exchange that carries small ones."""

from __future__ import annotations

from everstep.ranks.exchange import Exchange

__all__ = ["Parcels"]

_PART_BYTES = 500_000
"""gRPC, which carries jax's exchange, takes 4 MB by default, and torch's store 8; small parts also stall nobody."""


class Parcels:
    """Keys under ``prefix`` of an exchange; a long value is put in parts, and its key last."""

    def __init__(self, exchange: Exchange, prefix: str) -> None:
        self._exchange = exchange
        self._prefix = prefix
        self._parts: dict[str, int] = {}

    def put(self, key: str, value: bytes) -> None:
        """Make the value visible under a key that only this rank puts, or that is short enough to be whole."""
        key = self._prefix + key
        if len(value) < _PART_BYTES:
            self._exchange.put(key, b"=" + value)
            return
        count = -(-len(value) // _PART_BYTES)
        for number in range(count):
            self._exchange.put(f"{key}.{number}", value[number * _PART_BYTES : (number + 1) * _PART_BYTES])
        self._parts[key] = count
        self._exchange.put(key, b"#%d" % count)

    def find(self, key: str) -> bytes | None:
        """The whole value, or None."""
        key = self._prefix + key
        head = self._exchange.find(key)
        if head is None or head[:1] == b"=":
            return None if head is None else head[1:]
        parts = [self._exchange.find(f"{key}.{number}") for number in range(int(head[1:]))]
        if None in parts:
            return None  # forgotten between two questions
        return b"".join(part for part in parts if part is not None)

    def forget(self, key: str) -> None:
        """Remove a value that this rank put."""
        key = self._prefix + key
        self._exchange.forget(key)
        for number in range(self._parts.pop(key, 0)):
            self._exchange.forget(f"{key}.{number}")
