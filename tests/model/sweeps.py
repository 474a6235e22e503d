"""Who deletes: a prune that chooses and buries, and the sweep of a family of runs or of the whole store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.model.freezing import doom, freeze, hold, step_of
from tests.model.graves import ABORTED, Broken, bury, graves
from tests.model.marking import look, packs_of, remove
from tests.model.saves import settle
from tests.model.search import Program, choose, create, delete, get, listed

__all__ = ["keep_last", "prune", "sweep", "tidy"]


def prune(
    broken: Broken,
    *,
    run: str = "a",
    victims: tuple[str, ...] = ("S1",),
    stale: bool = True,
    whole: bool = False,
    young: bool = False,
    pages: tuple[str, ...] = (),
) -> Program:
    """Bury one of the victims or none, decide stale saves, then sweep. It takes any victim: policies come on top."""
    records = yield listed("commit", run)
    tags = yield listed("tag")
    standing = tuple(
        name for name in victims if records.get(name, ABORTED) != ABORTED and (run, name) not in tags.values()
    )
    del records, tags
    victim = ""
    if standing:
        victim = yield choose("chooses", "", *standing)
    del standing
    early: Mapping[str, Any] | None = None
    if "plans before tomb" in broken:
        early = yield listed("plan", run)
    if victim:
        yield from bury(broken, run, victim)
    del victim
    if stale:
        yield from _decide(broken, run)
    yield from sweep(broken, run=run, whole=whole, young=young, pages=pages, early=early)


def keep_last(broken: Broken, *, pages: tuple[str, ...] = ()) -> Program:
    """The prune of the policy ``last 1`` in run a, with what it protects: the newest, and the newest verified.

    Saves of one step and attempt are one: all are kept or none.
    """
    marks = yield listed("verified", "a")
    records = yield listed("commit", "a")
    gone = graves((yield listed("tomb", "a")))
    standing = tuple(
        sorted(
            (name for name, packs in records.items() if packs != ABORTED and name not in gone), key=step_of
        )
    )
    kept = frozenset([*standing[-1:], *[name for name in standing if name in marks][-1:]])
    if "each save for itself" not in broken:
        kept = frozenset(name for name in standing if step_of(name) in map(step_of, kept))
    victims = tuple(name for name in standing if name not in kept)
    del marks, records, gone, standing, kept
    for victim in victims:
        yield from bury(broken, "a", victim)
    del victims
    yield from sweep(broken, pages=pages)


def tidy(broken: Broken) -> Program:
    """What an operator runs when everybody is gone: decide all saves, forget dead readers, sweep the whole store."""
    for name in (yield listed("reader")):
        yield delete("reader", "", name)
        yield delete("reading", "", name)
    for run in (yield listed("run")):
        yield from _decide(broken, run)
    yield from sweep(broken, whole=True)


def _decide(broken: Broken, run: str) -> Program:
    plans = yield listed("plan", run)
    records = yield listed("commit", run)
    undecided = tuple(name for name in plans if name not in records)
    del plans, records
    for name in undecided:
        wish = yield choose(f"a time-out of {name}", "waits", "decides")
        if wish == "decides":
            yield from settle(broken, run, name)
        del wish


def sweep(
    broken: Broken,
    *,
    run: str = "a",
    whole: bool = False,
    young: bool = False,
    pages: tuple[str, ...] = (),
    early: Mapping[str, Any] | None = None,
) -> Program:
    """Delete what dead saves have and nothing live needs. It begins again when another one was in its way."""
    done = False
    while not done:
        done = yield from _sweep(broken, run, whole=whole, young=young, pages=pages, early=early)


def _sweep(
    broken: Broken,
    run: str,
    *,
    whole: bool,
    young: bool,
    pages: tuple[str, ...],
    early: Mapping[str, Any] | None,
) -> Program:
    targets = tuple((yield listed("run"))) if whole else (run,)
    scope, early_gone = targets, frozenset()
    if "heirs before the dead" in broken:
        scope, early_gone = yield from _family(broken, run)
    frozen, gone = yield from freeze(targets, young=young, pages=pages)
    gone |= early_gone
    del early_gone
    frozen = yield from hold(broken, targets, frozen)
    if frozen is None:
        return False
    del targets
    if "fates last" not in broken:
        frozen = yield from doom(broken, frozen)
    if whole and "one catalogue" not in broken:
        scope = tuple((yield listed("run")))
    elif not whole:
        if "heirs before the dead" not in broken:
            scope, more = yield from _family(broken, run)
            gone |= more
            del more
        frozen = yield from _without_copies(broken, run, frozen)
    packs: frozenset[str] = frozenset()
    if whole:
        packs = frozenset((yield listed("pack")))
    theirs = yield from packs_of(broken, frozen)
    seen = yield from look(broken, scope, frozen, gone, early)
    if seen is None:
        return False
    orphans = packs - seen.known
    if orphans:
        for name in sorted(orphans):
            yield create("orphan", "", name)
        if "orphans at once" not in broken:
            scope = tuple((yield listed("run")))
            seen = yield from look(broken, scope, frozen, gone, early)
            if seen is None:
                return False
    del scope, gone
    if "fates last" in broken:
        held, frozen = frozen, (yield from doom(broken, frozen))
        for dead in held:
            if dead not in frozen:
                undone = yield get("manifest", *dead.at)
                if undone is None:
                    return False
                seen = seen._replace(live=seen.live | undone)
                del undone
        del held
    doomed = theirs | packs & (orphans | {dead.at[1] for dead in frozen})
    del packs, orphans, theirs
    yield from remove(broken, frozen, seen, doomed, whole=whole)
    return True


def _family(broken: Broken, run: str) -> Program:
    """The run and, through links, all that may refer to its packs; what is pruned of these, listed before their links."""
    found, gone = (run,), frozenset()
    done = 0
    while done < len(found) and "sweep one run" not in broken:
        if done and "tombs of heirs last" not in broken:
            gone |= yield from _gone(found[done])
        heirs = yield listed("heir", found[done])
        if not ("heirs of the run alone" in broken and done):
            found += tuple(name for name in heirs if name not in found)
        del heirs
        done += 1
    if "tombs of heirs last" in broken:
        for heir in found[1:]:
            gone |= yield from _gone(heir)
    return found, gone


def _gone(run: str) -> Program:
    return frozenset((run, name) for name in graves((yield listed("tomb", run))))


def _without_copies(broken: Broken, run: str, frozen: Any) -> Program:
    """A sweep of a family leaves copies alone: packs of their names may be needed in runs that no link tells of."""
    copies = yield listed("copied", run)
    if "copies are made here" in broken:
        return frozen
    return tuple(dead for dead in frozen if dead.at[1] not in copies)
