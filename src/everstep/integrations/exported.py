"""What an export did."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Exported"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The files that were written, the tensors and tensor bytes in them, and paths of leaves left out."""

    files: tuple[Path, ...]
    tensors: int
    bytes: int
    left_out: tuple[str, ...]
