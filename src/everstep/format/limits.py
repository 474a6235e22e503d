"""Numbers of the format, and the bounds a reader holds a file to before it allocates anything."""

from __future__ import annotations

from typing import Final

__all__ = [
    "CHUNK_BYTES",
    "FORMAT_MAJOR",
    "MAX_CHUNK_BYTES",
    "MAX_DEPTH",
    "MAX_ENTRIES",
    "MAX_INDEX_BYTES",
    "MAX_JSON_DEPTH",
    "MAX_JSON_NODES",
    "MAX_MANIFEST_BYTES",
    "MAX_NDIM",
    "MAX_PACK_HEADER_BYTES",
    "MAX_PATH_CHARS",
    "MAX_RANKS",
    "MAX_RECORD_BYTES",
    "MAX_SHARES",
    "MAX_TENSOR_BYTES",
]

FORMAT_MAJOR: Final = 1
CHUNK_BYTES: Final = 8 * 2**20
"""A chunk's size; the last chunk of a shard is shorter."""

MAX_CHUNK_BYTES: Final = 64 * 2**20
MAX_RECORD_BYTES: Final = 4 * 2**20
"""Store, run, attempt, plan, commit, tag: small JSON objects."""
MAX_INDEX_BYTES: Final = 256 * 2**20
MAX_MANIFEST_BYTES: Final = 256 * 2**20
MAX_DEPTH: Final = 128
"""Nesting of the training state (components of a path), and of one plain value in it."""
MAX_JSON_DEPTH: Final = 2 * MAX_DEPTH + 32
"""Nesting of a JSON object: a tuple or dict in a value takes two levels."""
MAX_JSON_NODES: Final = 32 * 2**20
"""Values in one JSON object, so that parsing takes a bounded multiple of its size in memory."""
MAX_ENTRIES: Final = 4_000_000
MAX_NDIM: Final = 64
MAX_PACK_HEADER_BYTES: Final = 100_000_000
"""What the safetensors library takes."""
MAX_PATH_CHARS: Final = 4096
MAX_RANKS: Final = 1_000_000
MAX_SHARES: Final = 2**24
"""Boxes into which a layout cuts one dimension: coordinates of the mesh times the factors of strided placements."""
MAX_TENSOR_BYTES: Final = 2**50
