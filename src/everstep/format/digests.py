"""The digest of bytes: BLAKE3-256 in 64 hexadecimal digits."""

from __future__ import annotations

from typing import NewType

import blake3

__all__ = ["ALGORITHM", "Digest", "digest_of"]

ALGORITHM = "blake3-256"
Digest = NewType("Digest", str)


def digest_of(body: bytes | bytearray | memoryview) -> Digest:
    """The digest of contiguous bytes, on one thread; releases the GIL for all but tiny bodies."""
    return Digest(blake3.blake3(body).hexdigest())
