"""Who writes: an old attempt, a new one that settles what it left, a fork, a save that takes another's place."""

from __future__ import annotations

from tests.model.graves import ABORTED, Broken, Save, bury, graves, tomb_of, tombs
from tests.model.search import Program, choose, create, get, listed

__all__ = ["fork", "new_attempt", "old_attempt", "repack", "save", "settle"]


def old_attempt(broken: Broken, *, base: str = "S1", name: str = "S2") -> Program:
    """A training of attempt 1 that saves once, on a base or on none."""
    base = yield choose("picks its base", base, "")
    yield from save(broken, "a", name, (("a", base),) if base else (), attempt=1)


def new_attempt(broken: Broken, *, older: str = "S2", name: str = "S3") -> Program:
    """Attempt 2 of run a: claims its number, settles the older save, resumes, saves on what it found."""
    yield create("attempt", "a", "2")
    plans = yield listed("plan", "a")
    records = yield listed("commit", "a")
    undecided = older in plans and older not in records and "no settling" not in broken
    del plans, records
    if undecided:
        yield from settle(broken, "a", older)
    del undecided
    records = yield listed("commit", "a")
    standing = tuple(found for found, packs in records.items() if packs != ABORTED)
    yield create("resumed", "", "", value=standing)
    gone = graves((yield listed("tomb", "a")))
    alive = tuple(found for found in standing if found not in gone)
    del records, standing, gone
    base = yield choose("picks its base", *alive, "")
    del alive
    yield from save(broken, "a", name, (("a", base),) if base else (), attempt=2)


def settle(broken: Broken, run: str, name: str) -> Program:
    """Decide an older save: finish it when its index is there, else give it up."""
    index = yield get("index", run, name)
    if index is not None:
        yield create("manifest", run, name, value=index)
    if index is not None or "finish without indexes" in broken:
        yield create("commit", run, name, value=index or frozenset([name]))
    else:
        yield create("commit", run, name, value=ABORTED)


def fork(broken: Broken, *, of: Save = ("a", "S1"), run: str = "y", name: str = "S4") -> Program:
    """A run that begins at a checkpoint of another: the link, the run, a save without packs of its own."""
    yield create("run", "", run)
    yield from save(broken, run, name, (of,), own=False)


def save(
    broken: Broken, run: str, name: str, bases: tuple[Save, ...], *, attempt: int = 0, own: bool = True
) -> Program:
    """One save: links, plan, fence, base, pack, index, manifest, commit record. A fork cannot do without its base."""
    known: frozenset[str] = frozenset()
    base = bases[0] if bases else None
    if base is not None:
        packs = yield get("commit", *base)
        if packs is None or packs == ABORTED:
            return
        known = packs
        del packs
    linked = base is None or base[0] == run
    if not linked and not {"no link", "link after look"} & broken:
        yield create("heir", base[0], run)
    if "look before plan" in broken and base is not None:
        found = yield tombs(*base)
        if tomb_of(found, base[1]):
            return
        del found
    if "fence before plan" in broken and attempt:
        newer = yield get("attempt", run, str(attempt + 1))
        if newer is not None:
            return
        del newer
    yield create("plan", run, name, value=() if "no pin" in broken else bases)
    if "fence before plan" not in broken and attempt:
        newer = yield get("attempt", run, str(attempt + 1))
        if newer is not None:
            return
        del newer
    if base is not None and not {"no look", "look before plan"} & broken:
        found = yield tombs(*base)
        if tomb_of(found, base[1]):
            if not own:
                return
            known = frozenset()
        del found
    if not linked and "link after look" in broken:
        yield create("heir", base[0], run)
    if "dedupe by presence" in broken and base is None:
        there = yield get("pack", "", "S1")
        known = frozenset(["S1"]) if there is not None else known
        del there
    if own:
        known |= {name}
        yield create("pack", "", name)
    yield create("index", run, name, value=known)
    yield create("manifest", run, name, value=known)
    if "plain put" in broken:
        yield create("commit", run, name, value=known, over=True)
    else:
        yield create("commit", run, name, value=known)


def repack(broken: Broken, *, old: str = "S1", name: str = "R1") -> Program:
    """A save of the same step and content takes another's place: its packs are its own, the old one gets a tomb.

    When another tomb was first, the new one goes the same way.
    """
    yield create("plan", "a", name, value=(("a", old),))
    found = yield tombs("a", old)
    if tomb_of(found, old):
        return
    del found
    known = frozenset([name])
    yield create("pack", "", name)
    yield create("index", "a", name, value=known)
    yield create("manifest", "a", name, value=known)
    yield create("commit", "a", name, value=known)
    packs = yield get("commit", "a", name)
    if packs == ABORTED:
        return
    del packs
    yield from bury(broken, "a", old, by=name)
    found = yield tombs("a", old)
    tomb = tomb_of(found, old)
    other = tomb and found[tomb] != name
    del found, tomb
    if other:
        yield from bury(broken, "a", name)
