"""Who reads, tags and verifies: each writes first and looks afterwards."""

from __future__ import annotations

from tests.model.graves import Broken, Save, announce, tomb_of, tombs
from tests.model.search import Program, create, delete, get

__all__ = ["reader", "tagger", "verifier"]


def reader(broken: Broken, *, run: str = "a", save: str = "S1", name: str = "r") -> Program:
    """A long restore: the pin, a look at the tomb, reads, the pin away."""
    promise = ("reading", "", name)
    if "reader looks first" in broken:
        found = yield tombs(run, save)
        if tomb_of(found, save):
            return
        del found
    if "reader without pin" not in broken:
        yield create("reader", "", name, value=(run, save))
    if "reader looks first" in broken:
        yield create(*promise, value=(run, save))
    else:
        found = yield tombs(run, save, lambda found: {} if tomb_of(found, save) else {promise: (run, save)})
        gone = tomb_of(found, save)
        del found
        if gone and "reader without look" in broken:
            yield create(*promise, value=(run, save))
        del gone
    yield delete("reader", "", name, note=lambda _: {promise: None})


def tagger(
    broken: Broken, *, run: str = "a", save: str = "S1", name: str = "t", moves: Save | None = None
) -> Program:
    """A tag: a pin, a look, the record, another look: what was pruned in between is brought back; the pin away.

    ``moves`` is what has the tag now. A tag leads from a save to what took its place, and that is pinned.
    """
    promise, pin = ("tagged", "", name), f"tag {name}"
    at, by = save, save
    while by:
        at = by
        if "tag without pin" not in broken:
            yield create("reader", "", pin, value=(run, at))
        found = yield tombs(run, at)
        tomb = tomb_of(found, at)
        by = found[tomb] if tomb else ""
        del found
        if by and "pin what was replaced" in broken:
            break
        if tomb:
            yield delete("reader", "", pin)
        if tomb and not by:
            return
        del tomb
    del by
    if moves is not None:
        yield delete("tag", "", name, note=lambda _: {promise: None})
    yield create("tag", "", name, value=(run, save))
    lost = yield from _lost(run, at)
    if lost:
        won = yield create("fate", run, lost, value="undone")
        fate = "undone"
        if not won:
            fate = yield get("fate", run, lost)
        if fate == "swept":
            yield create("wrong", "", "a tag cannot be given")
        yield announce(run, lost)
        del won, fate
    yield delete("reader", "", pin, note=lambda _: {promise: (run, save)})


def _lost(run: str, save: str) -> Program:
    """The tomb of a save that is pruned, unless what took its place stands; else an empty text."""
    first, at = "", save
    while at:
        found = yield tombs(run, at)
        tomb = tomb_of(found, at)
        first = first or tomb
        if not tomb:
            return ""
        at = found[tomb]
        del found, tomb
    return first


def verifier(broken: Broken, *, save: str) -> Program:
    """The mark that all bytes of a checkpoint were read and found whole."""
    assert broken is not None
    yield create("verified", "a", save)
