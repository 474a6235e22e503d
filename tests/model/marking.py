"""What a sweep finds live: plans, then commit records, then manifests; and what it deletes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.model.freezing import Dead
from tests.model.graves import ABORTED, Broken, Save, tomb_of, tombs
from tests.model.search import Program, create, delete, get, listed

__all__ = ["Look", "look", "packs_of", "remove"]


class Look(NamedTuple):
    """Saves that have a plan, saves that some run knows, packs that are needed, and the bases of undecided saves."""

    planned: frozenset[Save]
    known: frozenset[str]
    live: frozenset[str]
    bases: frozenset[Save]


def look(
    broken: Broken,
    runs: tuple[str, ...],
    frozen: tuple[Dead, ...],
    gone: frozenset[Save],
    early: Mapping[str, Any] | None,
) -> Program:
    """What is live in these runs; None: a manifest has gone that was there, begin again. ``gone`` had a tomb before."""
    plans: tuple[tuple[Save, tuple[Save, ...]], ...] = ()
    for run in runs:
        found = early if early is not None else (yield listed("plan", run))
        plans += tuple(((run, name), bases) for name, bases in found.items())
        del found
    records: tuple[tuple[Save, Any], ...] = ()
    for run in runs:
        found = yield listed("commit", run)
        records += tuple(((run, name), packs) for name, packs in found.items())
        del found
    planned = frozenset(at for at, _ in plans)
    decided = frozenset(at for at, _ in records)
    undecided = tuple((at, bases) for at, bases in plans if at not in decided)
    if "forget old plans" in broken:
        undecided = ()
    taken = frozenset(dead.at for dead in frozen)
    alive = tuple(at for at, packs in records if packs != ABORTED and at not in taken)
    known = frozenset(at[1] for at in planned | decided)
    del plans, records, decided, taken
    live = yield from _alive(broken, tuple(at for at in alive if at not in gone or at in planned), gone)
    del alive
    if live is None:
        return None
    pinned = yield from _pinned(broken, undecided)
    if pinned is None:
        return None
    bases = frozenset(base for _, bases in undecided for base in bases)
    return Look(planned, known, live | pinned, bases)


def _alive(broken: Broken, alive: tuple[Save, ...], gone: frozenset[Save]) -> Program:
    """The packs of what stands, and of what is pruned and not frozen as far as it is there. None: begin again."""
    live: frozenset[str] = frozenset()
    for at in alive:
        packs = yield get("manifest", *at)
        if packs is None and at not in gone and "skip what is gone" not in broken:
            found = yield tombs(*at)
            if tomb_of(found, at[1]):
                return None
            yield create("wrong", "", f"damage of {at}")
        live |= packs or frozenset()
        del packs
    return live


def _pinned(broken: Broken, undecided: tuple[tuple[Save, tuple[Save, ...]], ...]) -> Program:
    """The packs of undecided saves and of their bases, also by their names alone. None: begin again."""
    pinned: frozenset[str] = frozenset()
    for at, bases in undecided:
        pinned |= {at[1], *(name for _, name in bases)}
        for base in bases:
            packs = yield get("manifest", *base)
            if packs is None and "skip the base that is gone" not in broken:
                record = yield get("commit", *at)
                if record is not None:
                    return None
                del record
            pinned |= packs or frozenset()
            del packs
    return pinned


def packs_of(broken: Broken, frozen: tuple[Dead, ...]) -> Program:
    """The packs of the frozen: those in their manifests, those under the names of the aborted."""
    names = frozenset(dead.at[1] for dead in frozen)
    packs: frozenset[str] = frozenset()
    if any(not dead.tomb for dead in frozen):
        there = yield listed("pack")
        packs |= {dead.at[1] for dead in frozen if not dead.tomb and dead.at[1] in there}
        del there
    for dead in frozen:
        if dead.tomb:
            manifest = yield get("manifest", *dead.at)
            packs |= (manifest or frozenset()) & (manifest or names if "packs of others" in broken else names)
            del manifest
    return packs


def remove(
    broken: Broken, frozen: tuple[Dead, ...], seen: Look, packs: frozenset[str], *, whole: bool
) -> Program:
    """Delete packs, then indexes, manifest and plan of what no undecided save relies on. Records and tombs stay.

    A sweep of the whole store also deletes what came late under a save that was swept before.
    """
    for pack in sorted(packs - seen.live):
        yield delete("pack", "", pack)
    for dead in frozen:
        if dead.at in seen.planned and (dead.at not in seen.bases or "delete pinned manifests" in broken):
            for kind in ("index", "manifest", "plan"):
                yield delete(kind, *dead.at)
        elif whole and dead.at not in seen.planned:
            for kind in ("index", "manifest", "plan"):
                late = yield get(kind, *dead.at)
                if late is not None:
                    yield delete(kind, *dead.at)
                del late
        if "delete records" in broken and not dead.tomb:
            yield delete("commit", *dead.at)
