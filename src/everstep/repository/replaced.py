"""Checkpoints that were written anew (repacked): the save that a tomb names in the place of the old one."""

from __future__ import annotations

from everstep.errors import IntegrityError, ObjectNotFound
from everstep.format.ids import SaveId, parse_save
from everstep.repository.repository import Repository
from everstep.repository.tombs import tomb, tombed

__all__ = ["lost", "standing", "successor"]


def successor(repo: Repository, run: str, save: SaveId) -> SaveId | None:
    """The save that took this one's place; None when it was not replaced. One request for a save that stands.

    A tomb that cannot be read tells no more than that the save was pruned.
    """
    try:
        record = tomb(repo, run, save)
    except (ObjectNotFound, IntegrityError):
        return None
    return parse_save(record.replaced_by) if record is not None and record.replaced_by else None


def standing(repo: Repository, run: str, save: SaveId) -> SaveId:
    """The save that has this one's place now: itself, unless it was replaced. It may have been pruned itself."""
    seen = {save}
    while (after := successor(repo, run, save)) is not None and after not in seen:
        seen.add(after)
        save = after
    return save


def lost(repo: Repository, run: str, save: SaveId) -> bool:
    """Whether the save was pruned and none that stands has its place; one request when it was not."""
    seen = {save}
    while tombed(repo, run, save):
        after = successor(repo, run, save)
        if after is None or after in seen:
            return True
        seen.add(after)
        save = after
    return False
