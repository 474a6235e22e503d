"""The worlds that a search begins in, and who acts in them. Each is small: one question, few actors."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tests.model.copies import copy
from tests.model.graves import Broken, Save, bury, undelete
from tests.model.people import reader, tagger, verifier
from tests.model.promises import broken_promise, left
from tests.model.saves import fork, new_attempt, old_attempt, repack
from tests.model.search import Found, Key, Objects, explore
from tests.model.sweeps import keep_last, prune

__all__ = ["ACTORS", "CASTS", "Cast", "play", "play_cast"]

Actor = partial[Any]
Cast = tuple[Objects, Mapping[str, Actor]]


def _whole(run: str, name: str, *packs: str, bases: tuple[Save, ...] = ()) -> dict[Key, Any]:
    """A committed save with all that it has."""
    refers = frozenset(packs or [name])
    return {
        ("run", "", run): "",
        ("plan", run, name): bases,
        **{("pack", "", pack): "" for pack in refers},
        ("index", run, name): refers,
        ("manifest", run, name): refers,
        ("commit", run, name): refers,
    }


def _tomb(run: str, name: str) -> dict[Key, Any]:
    return {("tomb", run, f"{name}.0"): ""}


def _verified(name: str) -> dict[Key, Any]:
    return {("verified", "a", name): ""}


_ONE = _whole("a", "S1")
_POLICY: dict[Key, Any] = {("policy", "", ""): ""}
_CHAIN = {**_ONE, **_tomb("a", "S1"), **_whole("a", "S2", "S1", "S2", bases=(("a", "S1"),))}
_FORKED = {
    **_ONE,
    **_tomb("a", "S1"),
    ("heir", "a", "y"): "",
    **_whole("y", "S4", "S1", bases=(("a", "S1"),)),
}
_RELIED = {
    ("run", "", "c"): "",
    ("copied", "d", "S3"): "",
    **_whole("d", "S3", "S1", "S3", bases=(("d", "S1"),)),
}
_LEFT: dict[Key, Any] = {("run", "", "c"): "", ("run", "", "d"): "", ("pack", "", "S1"): ""}
_LEFT_TOMBED = {**_LEFT, ("orphan", "", "S1"): ""}
_MARKED = {**_POLICY, **_ONE, **_whole("a", "S2"), **_whole("a", "S3"), **_verified("S1")}

_sweep = partial(prune, victims=(), stale=False)
_whole_sweep = partial(prune, victims=(), whole=True)
_pages = partial(_sweep, pages=("S2",))


def _two_forks(broken: Broken) -> Any:
    yield from fork(broken)
    yield from fork(broken, of=("y", "S4"), run="z", name="S5")


def _copy(run: str, name: str, *packs: str) -> Actor:
    return partial(copy, run=run, name=name, packs=frozenset(packs))


ACTORS: Mapping[str, Actor] = {
    "old": partial(old_attempt),
    "new": partial(new_attempt),
    "fork": partial(fork),
    "sweep": partial(prune),
    "sweep2": partial(prune),
    "reader": partial(reader),
    "tag": partial(tagger),
    "undelete": partial(undelete),
}
"""Those who act on one checkpoint S1 of run a: any three of them are searched, and some four."""

CASTS: Mapping[str, Cast] = {
    "two generations of forks": (
        _FORKED,
        {
            "fork": partial(fork, of=("y", "S4"), run="z", name="S5"),
            "sweep": partial(_sweep),
            "sweep of the fork": partial(prune, run="y", victims=("S4",)),
        },
    ),
    "a fork of what is swept": (
        _ONE,
        {"fork": partial(fork), "sweep": partial(_sweep), "prune": partial(prune)},
    ),
    "a sweep of a fork": (_ONE, {"fork": partial(fork), "sweep": partial(prune, run="y", victims=("S4",))}),
    "a fork beside sweeps of all": (
        _ONE,
        {"fork": partial(fork), "sweep": partial(_whole_sweep), "prune": partial(prune)},
    ),
    "forks of forks beside sweeps of all": (
        _ONE,
        {
            "forks": partial(_two_forks),
            "sweep": partial(_whole_sweep, stale=False),
            "prune": partial(prune, victims=("S1",), stale=False),
            "prune of the fork": partial(prune, run="y", victims=("S4",), stale=False),
        },
    ),
    "two attempts beside a sweep of all": (
        _ONE,
        {
            "old": partial(old_attempt),
            "new": partial(new_attempt),
            "prune": partial(prune, whole=True),
        },
    ),
    "a base that goes while it is marked": (
        _CHAIN,
        {
            "old": partial(old_attempt, base="S2", name="S3"),
            "sweep": partial(_sweep),
            "prune": partial(prune, victims=("S2",), stale=False),
        },
    ),
    "a base that goes beside a sweep of all": (
        _CHAIN,
        {
            "old": partial(old_attempt, base="S2", name="S3"),
            "prune": partial(prune, victims=("S2",), stale=False),
            "sweep": partial(_sweep, whole=True),
        },
    ),
    "a fork's base that goes while it is marked": (
        {**_ONE, **_tomb("a", "S1"), ("heir", "a", "y"): "", **_whole("y", "S6", "S1", "S6")},
        {
            "save": partial(fork, of=("y", "S6"), run="y", name="S7"),
            "sweep": partial(_sweep),
            "prune": partial(prune, run="y", victims=("S6",), stale=False),
        },
    ),
    "graces of several lengths": (
        _CHAIN,
        {
            "old": partial(old_attempt, base="S2", name="S3"),
            "sweep": partial(_sweep, young=True),
            "prune": partial(prune, victims=("S2",), stale=False, young=True),
        },
    ),
    "undeleted and buried again": (
        {**_ONE, **_tomb("a", "S1")},
        {
            "old": partial(old_attempt),
            "undelete": partial(undelete),
            "sweep": partial(_sweep),
            "prune": partial(prune, stale=False),
        },
    ),
    "undeleted and tagged": (
        {**_ONE, **_tomb("a", "S1")},
        {
            "tag": partial(tagger),
            "undelete": partial(undelete),
            "sweep": partial(_sweep),
            "prune": partial(prune, stale=False),
        },
    ),
    "a tag that moves": (
        {**_ONE, **_whole("a", "S2"), ("tag", "", "t"): ("a", "S1"), ("tagged", "", "t"): ("a", "S1")},
        {
            "tag": partial(tagger, save="S2", moves=("a", "S1")),
            "prune": partial(prune, victims=("S1", "S2")),
            "prune2": partial(prune, victims=("S1", "S2")),
        },
    ),
    "two policies": (
        _MARKED,
        {"last": partial(keep_last), "last2": partial(keep_last), "verify": partial(verifier, save="S2")},
    ),
    "two long lists of tombs": (
        {**_MARKED, **_verified("S2")},
        {
            "sweep": partial(_pages),
            "sweep2": partial(_pages),
            "bury": partial(bury, run="a", save="S1"),
            "bury2": partial(bury, run="a", save="S2"),
        },
    ),
    "repack beside a policy": (
        {**_POLICY, **_ONE},
        {"repack": partial(repack), "last": partial(keep_last), "last2": partial(keep_last)},
    ),
    "repack beside an undelete": (
        {**_POLICY, **_ONE, **_whole("a", "S2")},
        {"repack": partial(repack), "last": partial(keep_last), "undelete": partial(undelete)},
    ),
    "repack of what is a base": (
        _ONE,
        {"repack": partial(repack), "old": partial(old_attempt), "prune": partial(prune)},
    ),
    "repack beside a new attempt": (
        _ONE,
        {"repack": partial(repack), "new": partial(new_attempt), "old": partial(old_attempt)},
    ),
    "repack of what is read": (
        _ONE,
        {"repack": partial(repack), "reader": partial(reader), "prune": partial(prune)},
    ),
    "repack of what is tagged": (
        _ONE,
        {
            "repack": partial(repack),
            "tag": partial(tagger),
            "prune": partial(prune, victims=("R1",), stale=False, pages=("S",)),
            "prune2": partial(prune, victims=("S1",), stale=False, pages=("S",)),
        },
    ),
    "a copy inside the store": (_ONE, {"copy": _copy("d", "S1", "S1"), "prune": partial(prune)}),
    "a copy inside the store beside sweeps of all": (
        _ONE,
        {"copy": _copy("d", "S1", "S1"), "prune": partial(prune, whole=True)},
    ),
    "a copy inside the store of what has packs of the dead": (
        _CHAIN,
        {"copy": _copy("d", "S2", "S1", "S2"), "prune": partial(prune, victims=("S2",))},
    ),
    "a prune of a copy": (
        _ONE,
        {"copy": _copy("d", "S1", "S1"), "prune": partial(prune, run="d"), "prune2": partial(prune)},
    ),
    "a prune of a copy whose packs another copy relies on": (
        _RELIED,
        {"copy": _copy("c", "S1", "S1"), "prune": partial(prune, run="c")},
    ),
    "a copy of what lies there": (_LEFT, {"copy": _copy("c", "S1", "S1"), "sweep": partial(_whole_sweep)}),
    "a copy that needs what lies there": (
        _LEFT,
        {
            "copy": _copy("c", "S2", "S1", "S2"),
            "sweep": partial(_whole_sweep),
            "sweep2": partial(_whole_sweep),
        },
    ),
    "a copy that needs what is being swept": (
        _LEFT_TOMBED,
        {"copy": _copy("c", "S2", "S1", "S2"), "sweep": partial(_whole_sweep)},
    ),
    "two copies of one save": (
        _LEFT,
        {
            "copy": _copy("c", "S1", "S1"),
            "copy2": _copy("d", "S1", "S1"),
            "prune": partial(prune, run="c"),
            "sweep": partial(_whole_sweep),
        },
    ),
}
"""Each by the question that it asks."""


def play(
    names: tuple[str, ...], broken: Broken = frozenset(), *, tidied: bool = False, merged: bool = True
) -> Found:
    """Search what these of `ACTORS` can do. ``tidied``: also what is left of each state when all are gone."""
    return _explore(_ONE, {name: ACTORS[name] for name in names}, broken, tidied=tidied, merged=merged)


def play_cast(name: str, broken: Broken = frozenset(), *, tidied: bool = True) -> Found:
    """Search one of `CASTS`."""
    return _explore(*CASTS[name], broken, tidied=tidied)


def _explore(
    first: Objects, actors: Mapping[str, Actor], broken: Broken, *, tidied: bool, merged: bool = True
) -> Found:
    def wrong(before: Objects, after: Objects) -> str:
        return broken_promise(before, after) or (left(after, broken) if tidied else "")

    programs = {name: partial(actor, broken) for name, actor in actors.items()}
    return explore(programs, first, wrong, merged=merged)
