"""A copy of a checkpoint into a run of this store, from another store or from another run of this one."""

from __future__ import annotations

from tests.model.graves import ABORTED, Broken, graves
from tests.model.search import Program, create, get, listed

__all__ = ["copy"]

Home = tuple[str, str, bool]


def copy(broken: Broken, *, run: str, name: str, packs: frozenset[str]) -> Program:
    """The note that the run has copies, links, the plan with the homes of what it needs, a look at them, packs, record.

    ``packs`` are those of the checkpoint, by the saves that wrote them. A home is another run that has decided one of
    them. Where a home of the copied save itself stands, its manifest has all the packs. Else each owner needs a home
    that stands; one without any home needs that it has no tomb of an orphan.
    """
    needed = packs - {name} if "copy without its own name" in broken else packs | {name}
    yield create("run", "", run)
    yield create("copied", run, name)
    homes = yield from _homes(run, needed)
    if "copy without link" not in broken:
        for home in sorted({home for home, _, _ in homes}):
            yield create("heir", home, run)
    alike = tuple((home, found) for home, found, stands in homes if stands and found == name)
    known = frozenset(found for _, found, _ in homes)
    bases = alike or (
        *((home, found) for home, found, _ in homes),
        *((run, lost) for lost in sorted(needed - known) if lost != name),
    )
    del homes, alike, known
    yield create("plan", run, name, value=bases)
    del bases
    if "copy without look" not in broken:
        homes = yield from _homes(run, needed)
        standing = frozenset(found for _, found, stands in homes if stands)
        decided = frozenset(found for _, found, _ in homes)
        del homes
        if name not in standing:
            if decided - standing:
                return
            for lost in sorted(needed - decided) if "no look at orphans" not in broken else ():
                tomb = yield get("orphan", "", lost)
                if tomb is not None:
                    return
                del tomb
        del standing, decided
    for pack in sorted(packs):
        yield create("pack", "", pack)
    yield create("index", run, name, value=packs)
    yield create("manifest", run, name, value=packs)
    yield create("commit", run, name, value=packs)


def _homes(run: str, needed: frozenset[str]) -> Program:
    """Other runs that have decided a save whose packs are needed, and whether it stands there."""
    homes: tuple[Home, ...] = ()
    for other in tuple(name for name in (yield listed("run")) if name != run):
        records = yield listed("commit", other)
        gone = graves((yield listed("tomb", other)))
        homes += tuple(
            (other, name, packs != ABORTED and name not in gone)
            for name, packs in records.items()
            if name in needed
        )
        del records, gone
    return homes
