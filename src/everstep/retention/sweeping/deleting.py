"""The deleting itself, counted: what the store really lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from everstep.repository.parallel import gather
from everstep.repository.repository import Repository
from everstep.retention.marking import PackLists

__all__ = ["Deleting"]

_BATCH = 64


@dataclass(slots=True, kw_only=True)
class Deleting:
    """Deletes objects and counts what the store really lost; nothing more once ``stop`` says so."""

    repo: Repository
    lists: PackLists
    stop: Callable[[], bool]
    measure: bool
    packs: int = 0
    objects: int = 0
    bytes: int = 0
    stopped: bool = False

    def delete_packs(self, keys: Iterable[str]) -> bool:
        """Delete packs, a few at a time; whether all are gone."""
        wanted = sorted(keys)
        for first in range(0, len(wanted), _BATCH):
            batch = wanted[first : first + _BATCH]
            sizes = self.lists.sizes(batch) if self.measure else self.lists.known_sizes(batch)
            there = [key for key in batch if key in sizes] if self.measure else batch
            if not self._delete([(key, sizes.get(key, 0)) for key in there]):
                return False
            self.packs += len(there)
        return True

    def delete_objects(self, found: Iterable[tuple[str, int]]) -> bool:
        """Delete objects of known size, a few at a time; whether all are gone."""
        wanted = list(found)
        return all(self._delete(wanted[first : first + _BATCH]) for first in range(0, len(wanted), _BATCH))

    def _delete(self, batch: list[tuple[str, int]]) -> bool:
        if self.stopped or self.stop():
            self.stopped = True
            return False
        gather(self.repo.store.delete, [key for key, _ in batch])
        self.objects += len(batch)
        self.bytes += sum(size for _, size in batch)
        return True
