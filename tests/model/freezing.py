"""Which saves a sweep may take: the dead, less what tags, readers and marks of verification hold."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from tests.model.graves import ABORTED, Broken, Save, announce, graves, tomb_of, tombs
from tests.model.search import Listing, Program, choose, create, get, listed

__all__ = ["Dead", "doom", "freeze", "hold", "step_of"]


class Dead(NamedTuple):
    """A dead save: the name of its tomb (empty when it was aborted), and what took its place."""

    at: Save
    tomb: str
    by: str


def step_of(name: str) -> str:
    """S1 and R1, which takes its place, have step 1."""
    return name[1:]


def freeze(runs: tuple[str, ...], *, young: bool, pages: tuple[str, ...]) -> Program:
    """The dead of these runs: aborted, or with a tomb that is old enough; and all that have a tomb.

    ``pages`` are where a list of tombs ends and goes on by another request; ``young``: the clock may say anything.
    """
    frozen: tuple[Dead, ...] = ()
    gone: frozenset[Save] = frozenset()
    for run in runs:
        found = Listing()
        for since, until in pairwise(("", *pages, "~")):
            page = yield listed("tomb", run, since=since, until=until)
            found = Listing({**found, **page})
            del page
        for save, tomb in graves(found).items():
            gone |= {(run, save)}
            age = "old"
            if young:
                age = yield choose(f"{tomb} is", "young", "old")
            if age == "old":
                frozen += (Dead((run, save), tomb, found[tomb]),)
            del age
        del found
        records = yield listed("commit", run)
        frozen += tuple(Dead((run, save), "", "") for save, packs in records.items() if packs == ABORTED)
        del records
    return frozen, gone


def hold(broken: Broken, runs: tuple[str, ...], frozen: tuple[Dead, ...]) -> Program:
    """The frozen that nothing holds; None: another sweep or prune is in the way, begin again.

    What a tag or a mark holds is brought back; what a reader holds is left for another time.
    """
    pinned: frozenset[Save] = frozenset()
    if "no look at readers" not in broken:
        pinned = frozenset((yield listed("reader")).values())
    tags: tuple[Save, ...] = ()
    if "no look at tags" not in broken:
        tags = tuple(sorted((yield listed("tag")).values()))
    for at in tags:
        frozen = yield from _tagged(broken, at, frozen)
        if frozen is None:
            return None
    for run in runs:
        marks = yield listed("verified", run)
        if marks and "bury the verified" not in broken:
            frozen = yield from _verified(broken, run, marks, frozen)
            if frozen is None:
                return None
        del marks
    return tuple(dead for dead in frozen if not dead.tomb or dead.at not in pinned)


def _tagged(broken: Broken, at: Save, frozen: tuple[Dead, ...]) -> Program:
    """The tag's checkpoint stays: what took its place, and when a sweep has had that, the one before."""
    places = {dead.at: (dead.at[0], dead.by) for dead in frozen if dead.by}
    chain = (at,)
    while chain[0] in places and "tags do not follow" not in broken:
        chain = (places[chain[0]], *chain)
    del places
    buried = frozenset(dead.at for dead in frozen if dead.tomb)
    if chain[0] not in buried and len(chain) > 1 and "no second look at the tagged" not in broken:
        found = yield tombs(*chain[0])
        if tomb_of(found, chain[0][1]):
            return None
        del found
    while chain and chain[0] in buried:
        frozen = yield from _bring_back(frozen, chain[0])
        if not any(dead.at == chain[0] for dead in frozen) or "only the last of a chain" in broken:
            break
        chain = chain[1:]
    return frozen


def _verified(broken: Broken, run: str, marks: Listing, frozen: tuple[Dead, ...]) -> Program:
    """One that was verified stays: the newest that stands is looked at once more, else one is brought back."""
    records = yield listed("commit", run)
    buried = frozenset(dead.at[1] for dead in frozen if dead.at[0] == run)
    known = tuple(
        sorted((name for name in marks if records.get(name, ABORTED) != ABORTED), key=step_of, reverse=True)
    )
    del records
    standing = tuple(name for name in known if name not in buried)
    if standing and buried & marks.keys() and "no second look at the verified" not in broken:
        found = yield tombs(run, standing[0])
        if tomb_of(found, standing[0]):
            return None
        del found
    for name in () if standing else known:
        frozen = yield from _bring_back(frozen, (run, name))
        if not any(dead.at == (run, name) for dead in frozen):
            break
    return frozen


def _bring_back(frozen: tuple[Dead, ...], at: Save) -> Program:
    """The frozen without this one, unless a sweep had decided its fate before."""
    dead = next(dead for dead in frozen if dead.at == at)
    won = yield create("fate", at[0], dead.tomb, value="undone")
    fate = "undone"
    if not won:
        fate = yield get("fate", at[0], dead.tomb)
    if fate == "swept":
        return frozen
    yield announce(at[0], dead.tomb)
    return tuple(other for other in frozen if other != dead)


def doom(broken: Broken, frozen: tuple[Dead, ...]) -> Program:
    """The frozen whose fate is to be swept: nobody can bring them back any more."""
    doomed: tuple[Dead, ...] = ()
    for dead in frozen:
        fate = "swept"
        if dead.tomb and "no fates" not in broken:
            won = yield create("fate", dead.at[0], dead.tomb, value="swept")
            if not won:
                fate = yield get("fate", dead.at[0], dead.tomb)
            if fate == "undone":
                yield announce(dead.at[0], dead.tomb)
            del won
        if fate == "swept":
            doomed += (dead,)
        del fate
    if "undelete by looks" in broken:
        found = yield listed("tomb", "a")
        doomed = tuple(dead for dead in doomed if not dead.tomb or dead.tomb in found)
        del found
    return doomed
