"""Saves that somebody holds: by a tag, or by a pin while reading."""

from __future__ import annotations

from dataclasses import dataclass, field

from everstep.format.ids import SaveId, parse_save
from everstep.repository.readers import PIN_S, readers
from everstep.repository.replaced import successor
from everstep.repository.repository import Repository
from everstep.repository.tags import tags
from everstep.retention.store_time import StoreTime

__all__ = ["Pinned", "find_pinned"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """Run and save of all that is held: ``tagged`` by the names of tags, ``read`` by who reads it."""

    tagged: dict[tuple[str, SaveId], tuple[str, ...]] = field(default_factory=dict)
    read: dict[tuple[str, SaveId], tuple[str, ...]] = field(default_factory=dict)


def find_pinned(repo: Repository, time: StoreTime) -> Pinned:
    """All tags and pins of the store: two lists, and a request for each.

    Raises an `IntegrityError` for one that cannot be read: it may be of any checkpoint.
    """
    found = Pinned()
    for tag in tags(repo):
        place = (tag.run, parse_save(tag.save))
        found.tagged[place] = (*found.tagged.get(place, ()), tag.tag)
    for pin in readers(repo, lambda listed: not time.passed(listed.modified, PIN_S)):
        place = (pin.run, parse_save(pin.save))
        found.read[place] = (*found.read.get(place, ()), pin.owner)
    return found


def holds(repo: Repository, pinned: Pinned, run: str, save: SaveId) -> bool:
    """Whether a tag means this save, which has a tomb: not when it was replaced, then it means the other one."""
    return (run, save) in pinned.tagged and successor(repo, run, save) is None
