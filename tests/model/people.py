"""Who reads, tags and verifies: each writes first and looks afterwards."""

from __future__ import annotations

from tests.model.graves import Broken, Save, tomb_of, tombs
from tests.model.search import Program, create, delete

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
    """A tag: the record, then a look whether what it leads to is pruned: then it is taken back.

    ``moves`` is what has the tag now. A tag leads from a save to what took its place.
    """
    promise = ("tagged", "", name)
    if moves is not None:
        yield delete("tag", "", name, note=lambda _: {promise: None})
    if "tag looks first" in broken:
        found = yield tombs(run, save)
        if tomb_of(found, save):
            return
        yield create("tag", "", name, value=(run, save), note=lambda _: {promise: (run, save)})
        return
    yield create("tag", "", name, value=(run, save))
    at, tomb = save, "unknown"
    while tomb:
        found = yield tombs(
            run, at, lambda found, at=at: {} if tomb_of(found, at) else {promise: (run, save)}
        )
        tomb = tomb_of(found, at)
        at = found[tomb] if tomb else at
        del found
        if tomb and not at:
            break
    if tomb and "keep tag" in broken:
        yield create(*promise, value=(run, save))
    elif tomb:
        yield delete("tag", "", name)


def verifier(broken: Broken, *, save: str) -> Program:
    """The mark that all bytes of a checkpoint were read and found whole."""
    assert broken is not None
    yield create("verified", "a", save)
