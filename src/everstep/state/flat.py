"""What crosses from the training state to the rest: entries, the bytes this rank holds, and where bytes go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from everstep.format.box import Box
from everstep.format.entries import Entry

T = TypeVar("T")

__all__ = ["Coverage", "Flat", "Piece", "Restoration", "Source", "Target", "Wanted"]


class Source(Protocol):
    """The bytes of one shard in memory, row-major, little-endian."""

    def view(self) -> memoryview | None:
        """The bytes themselves, read-only or not, when they lie contiguous in this machine's memory; else None."""
        ...

    def copy_to(self, into: memoryview) -> None:
        """Copy them, all, into ``into``. From a device the copy may still run on return: `Flat.synchronize`."""
        ...


class Target(Protocol):
    """Where the bytes of one box go on restore."""

    def view(self) -> memoryview | None:
        """Writable contiguous memory of the whole box, filled in place; None when there is none."""
        ...

    def copy_from(self, filled: memoryview) -> None:
        """Take the box's bytes, row-major, from memory that was filled instead."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One shard that this rank holds: of the tensor at ``path``, the elements of ``box``.

    ``replicas`` are the ranks that hold the same bytes, this one among them; None: all ranks of the save.
    """

    path: str
    dtype: str
    box: Box
    nbytes: int
    source: Source
    replicas: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flat:
    """A training state as entries in pre-order and the shards this rank holds, in the entries' order.

    It refers to the live state: `synchronize` ends the copies that `Source.copy_to` began on a device.
    """

    entries: tuple[Entry, ...]
    pieces: tuple[Piece, ...]
    synchronize: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One box that a restore needs, and where it goes."""

    path: str
    dtype: str
    box: Box
    nbytes: int
    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What a restore found: paths of leaves restored, and those skipped because the caller named them.

    ``missing`` are leaves of the state that the checkpoint lacks, ``unexpected`` the other way round,
    ``skipped`` those that both have. ``resized`` are the `PerRank` parts that were saved by another number of
    ranks.
    """

    restored: tuple[str, ...]
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    cast: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    resized: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoration(Generic[T]):
    """A restore that was checked and not yet done: fetch ``wanted``, then call ``finish``."""

    wanted: tuple[Wanted, ...]
    coverage: Coverage
    finish: Callable[[], T]
