"""Runs that may share packs: each fork with what it was forked from, and all that was copied between them."""

from __future__ import annotations

from collections.abc import Iterable

from everstep.repository.keys import heirs_prefix
from everstep.repository.objects import listed
from everstep.repository.parallel import gather
from everstep.repository.repository import Repository
from everstep.repository.runs import runs

__all__ = ["kin"]


def kin(repo: Repository, names: Iterable[str]) -> tuple[str, ...]:
    """These runs and all that they may share packs with, in either direction and over others; by name.

    Costs the list of runs, each one's record, and one list for each run of the store. A run that is named and is not
    there is left out.
    """
    records = runs(repo)
    known = {record.run for record in records}
    near: dict[str, set[str]] = {name: set() for name in known}

    def heirs(name: str) -> list[str]:
        prefix = heirs_prefix(name)
        return [found.key.removeprefix(prefix) for found in listed(repo.store, prefix)]

    pairs = [(record.parent.run, record.run) for record in records if record.parent is not None]
    ordered = sorted(known)
    for name, found in zip(ordered, gather(heirs, ordered), strict=True):
        pairs += [(name, heir) for heir in found]
    for one, other in pairs:
        if one in known and other in known:
            near[one].add(other)
            near[other].add(one)
    waiting, reached = [name for name in names if name in known], set[str]()
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += near[name]
    return tuple(sorted(reached))
