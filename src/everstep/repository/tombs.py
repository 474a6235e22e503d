"""Tombs: the names of pruned saves. They are only read here."""

from __future__ import annotations

from everstep.format.ids import SaveId
from everstep.repository.keys import tomb_key, tombs_prefix
from everstep.repository.objects import exists
from everstep.repository.repository import Repository

__all__ = ["pruned", "tombed"]


def tombed(repo: Repository, run: str, save: SaveId) -> bool:
    """Whether the save was pruned; one request."""
    return exists(repo.store, tomb_key(run, save))


def pruned(repo: Repository, run: str) -> frozenset[str]:
    """The names of all pruned saves of a run; one list."""
    prefix = tombs_prefix(run)
    return frozenset(found.key.removeprefix(prefix) for found in repo.store.list(prefix))
