"""How far the training is, in a small file that another process reads while it runs and after it was killed."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

__all__ = ["ProgressFile", "read_progress"]

_FIELDS = struct.Struct("<4Q")


class ProgressFile:
    """Four little-endian 64-bit counts: steps done, saves begun, saves committed, step resumed from plus one.

    The file is mapped: a write is a store to memory, and survives the death of the process.
    """

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(_FIELDS.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _FIELDS.size)

    def step(self, done: int) -> None:
        """So many steps are done."""
        struct.pack_into("<Q", self._map, 0, done)

    def begun(self, saves: int) -> None:
        """So many saves were begun in this process."""
        struct.pack_into("<Q", self._map, 8, saves)

    def committed(self, saves: int) -> None:
        """So many of them are checkpoints now."""
        struct.pack_into("<Q", self._map, 16, saves)

    def resumed(self, step: int | None) -> None:
        """The training goes on from ``step``; None: from the start."""
        struct.pack_into("<Q", self._map, 24, 0 if step is None else step + 1)


def read_progress(path: Path) -> tuple[int, int, int, int]:
    """The four counts; zeros when there is no file yet."""
    try:
        body = path.read_bytes()
    except FileNotFoundError:
        return (0, 0, 0, 0)
    if len(body) < _FIELDS.size:
        return (0, 0, 0, 0)
    done, begun, committed, resumed = _FIELDS.unpack_from(body)
    return (done, begun, committed, resumed)
