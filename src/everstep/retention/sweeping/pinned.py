"""Saves that somebody holds: by a tag, or by a pin while reading."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

from everstep.format.ids import SaveId, parse_save
from everstep.repository.readers import PIN_S, readers
from everstep.repository.replaced import successor
from everstep.repository.repository import Repository
from everstep.repository.tags import tags
from everstep.retention.sweeping.store_time import StoreTime

__all__ = ["Pinned", "find_pinned"]

Place = tuple[str, SaveId]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """Run and save of all that is held: ``tagged`` by the names of tags, ``read`` by who reads it.

    ``chains`` has for each tag what it was set on, and what took its place, one after the other (repacked).
    """

    tagged: Mapping[Place, tuple[str, ...]]
    read: Mapping[Place, tuple[str, ...]]
    chains: tuple[tuple[Place, ...], ...]


def find_pinned(repo: Repository, time: StoreTime, dead: Mapping[str, Container[SaveId]]) -> Pinned:
    """All tags and pins of the store: two lists, and a request for each.

    A tag on one of the ``dead`` of a run that was replaced (repacked) holds both ends of the chain. Raises an
    `IntegrityError` for a tag or pin that cannot be read: it may be of any checkpoint.
    """
    tagged: dict[Place, tuple[str, ...]] = {}
    chains = []
    for tag in tags(repo):
        chain = [(tag.run, parse_save(tag.save))]
        while chain[-1][1] in dead.get(tag.run, ()):
            after = successor(repo, *chain[-1])
            if after is None or (tag.run, after) in chain:
                break
            chain.append((tag.run, after))
        for place in {chain[0], chain[-1]}:
            tagged[place] = (*tagged.get(place, ()), tag.tag)
        chains.append(tuple(chain))
    read: dict[Place, tuple[str, ...]] = {}
    for pin in readers(repo, lambda listed: not time.passed(listed.modified, PIN_S)):
        place = (pin.run, parse_save(pin.save))
        read[place] = (*read.get(place, ()), pin.owner)
    return Pinned(tagged=tagged, read=read, chains=tuple(chains))
