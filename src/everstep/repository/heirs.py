"""Which runs may refer to packs of which: links that are written before they do, so that a sweep looks there too."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from everstep.errors import InvalidName
from everstep.format.ids import parse_run
from everstep.format.limits import FORMAT_MAJOR
from everstep.format.records import HeirRecord
from everstep.format.wire import to_bytes
from everstep.repository.keys import copied_key, heir_key, heirs_prefix
from everstep.repository.objects import create_mark, listed
from everstep.repository.repository import Repository

__all__ = ["Family", "families", "family", "inherit", "note_copied"]

_COPIED = re.compile(r"_copied-(\d{8})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Runs that may refer to packs of some runs, these included.

    ``copied`` has for each the attempt up to which its saves may be copies, named alike in runs that are not linked.
    """

    runs: tuple[str, ...]
    copied: dict[str, int]


def inherit(repo: Repository, *, of: str, heir: str) -> None:
    """Say that the run ``heir`` may refer to packs of the run ``of``. To be called before a plan of it that may."""
    if of != heir:
        record = HeirRecord(format=FORMAT_MAJOR, run=of, heir=heir, created=repo.clock())
        create_mark(repo.store, heir_key(of, heir), to_bytes(record))


def note_copied(repo: Repository, run: str, attempt: int) -> None:
    """Say that saves of the run up to this attempt may be copies. To be called before the first plan of one."""
    record = HeirRecord(format=FORMAT_MAJOR, run=run, heir=run, created=repo.clock())
    create_mark(repo.store, copied_key(run, attempt), to_bytes(record))


def family(repo: Repository, run: str) -> tuple[str, ...]:
    """The run, and all runs that may refer to packs of it, by links of links; one list for each of them."""
    return families(repo, (run,)).runs


def families(
    repo: Repository, runs: tuple[str, ...], before: Callable[[str], object] | None = None
) -> Family:
    """The runs, and all that may refer to packs of theirs, by links of links; one list for each of them.

    ``before`` is called with each run before its links are listed.
    """
    found: list[str] = []
    copied: dict[str, int] = {}
    waiting = deque(runs)
    while waiting:
        run = waiting.popleft()
        if run in found:
            continue
        found.append(run)
        if before is not None:
            before(run)
        prefix = heirs_prefix(run)
        for one in listed(repo.store, prefix):
            name = one.key.removeprefix(prefix)
            if match := _COPIED.fullmatch(name):
                copied[run] = max(copied.get(run, 0), int(match[1]))
            elif (heir := _run(name)) is not None:
                waiting.append(heir)
    return Family(runs=tuple(found), copied=copied)


def _run(name: str) -> str | None:
    try:
        return parse_run(name)
    except InvalidName:
        return None
