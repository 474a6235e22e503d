"""Tombs, what becomes of them, and who brings back: one record decides between a sweep and an undelete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.model.search import Ask, Program, create, delete, get, listed

__all__ = ["ABORTED", "Broken", "Save", "announce", "bury", "graves", "tomb_of", "tombs", "undelete"]

ABORTED = "aborted"
Broken = frozenset[str]
Save = tuple[str, str]
"""A run and the name of a save in it."""


def tombs(run: str, save: str, note: Any = None) -> Ask:
    """All about the tombs of one save: one list."""
    return listed("tomb", run, since=f"{save}.", until=f"{save}/", note=note)


def graves(found: Mapping[str, Any]) -> dict[str, str]:
    """The tomb of each save that is pruned: its last one, unless that is announced as undone."""
    last = {name.partition(".")[0]: name for name in sorted(found) if not name.endswith("undone")}
    return {save: tomb for save, tomb in last.items() if f"{tomb}undone" not in found}


def tomb_of(found: Mapping[str, Any], save: str) -> str:
    """The tomb of this save, or an empty text."""
    return graves(found).get(save, "")


def bury(broken: Broken, run: str, save: str, by: str = "") -> Program:
    """A tomb under the first number; under the next one when the burial before was undone."""
    number = 0
    while True:
        made = yield create("tomb", run, f"{save}.{number}", value=by)
        if made or "one name for all tombs" in broken:
            return
        del made
        found = yield tombs(run, save)
        if tomb_of(found, save):
            return
        number = max(int(name[-1]) for name in found if not name.endswith("undone")) + 1
        del found


def undelete(broken: Broken, *, run: str = "a", save: str = "S1") -> Program:
    """Bring a pruned checkpoint back: win the burial's fate, which a sweep may have taken; then say so."""
    found = yield tombs(run, save)
    tomb = tomb_of(found, save)
    del found
    if not tomb:
        return
    if "undelete by looks" in broken:
        yield from _by_looks(run, tomb)
    elif "undelete without fate" in broken:
        yield announce(run, tomb)
    else:
        won = yield create("fate", run, tomb, value="undone")
        fate = "undone"
        if not won:
            fate = yield get("fate", run, tomb)
        if fate == "undone":
            yield announce(run, tomb)


def announce(run: str, tomb: str) -> Ask:
    """Say that a burial was undone."""
    return create("tomb", run, f"{tomb}undone")


def _by_looks(run: str, tomb: str) -> Program:
    """As it was first thought of: the sweep's mark is looked for, the tomb removed, the mark looked for again."""
    mark = yield get("fate", run, tomb)
    if mark is not None:
        return
    yield delete("tomb", run, tomb)
    mark = yield get("fate", run, tomb)
    if mark is not None:
        yield create("tomb", run, tomb)
