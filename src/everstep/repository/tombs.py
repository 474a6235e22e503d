"""Tombs: which saves of a run were pruned. A tomb is never removed; what is undeleted says so beside it.

The tombs of a save are numbered from 0. A save is pruned while its tomb of the highest number is not announced as
undeleted. Which of the two becomes of a tomb is decided by one object (`everstep.repository.fates`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from everstep.errors import AlreadyExists, StoreUnavailable
from everstep.format.ids import SaveId
from everstep.format.limits import FORMAT_MAJOR
from everstep.format.records import TombRecord
from everstep.format.wire import to_bytes
from everstep.repository.keys import grave_of, tomb_key, tombs_prefix
from everstep.repository.objects import exists, listed, read_record
from everstep.repository.repository import Repository
from everstep.store.protocol import Listed

__all__ = ["Grave", "bury", "find_grave", "graves", "pruned", "tomb", "tombed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grave:
    """A pruned save: the number of its tomb, and since when by the store's clock (seconds since 1970).

    ``since`` is infinite for a tomb that was made just now.
    """

    run: str
    save: SaveId
    number: int
    since: float


def graves(repo: Repository, run: str) -> dict[SaveId, Grave]:
    """All pruned saves of a run; one list."""
    return _buried(run, listed(repo.store, tombs_prefix(run)))


def pruned(repo: Repository, run: str) -> frozenset[str]:
    """The names of all pruned saves of a run; one list."""
    return frozenset(map(str, graves(repo, run)))


def tombed(repo: Repository, run: str, save: SaveId) -> bool:
    """Whether the save is pruned; one request when it never was, else two."""
    return find_grave(repo, run, save) is not None


def find_grave(repo: Repository, run: str, save: SaveId) -> Grave | None:
    """As `graves`, of one save; None when it stands. One request when it never was pruned, else two."""
    return _last(repo, run, save) if exists(repo.store, tomb_key(run, save)) else None


def tomb(repo: Repository, run: str, save: SaveId) -> TombRecord | None:
    """The tomb of a pruned save; None when it stands. Raises an `IntegrityError` for one that cannot be read."""
    last = find_grave(repo, run, save)
    if last is None:
        return None
    return read_record(repo.store, tomb_key(run, save, last.number), TombRecord)


def bury(repo: Repository, run: str, save: SaveId, *, why: str, replaced_by: SaveId | None = None) -> Grave:
    """Prune a save: from here on it is no checkpoint. A tomb that stands already is left as it is.

    ``why`` is for people. ``replaced_by`` is the save that has its place. One request, when the save never was pruned.
    """
    number = 0
    while True:
        record = TombRecord(
            format=FORMAT_MAJOR,
            run=run,
            save=str(save),
            created=repo.clock(),
            why=why,
            replaced_by="" if replaced_by is None else str(replaced_by),
        )
        try:
            repo.store.create(tomb_key(run, save, number), to_bytes(record))
        except (AlreadyExists, StoreUnavailable) as error:
            if (standing := _last(repo, run, save)) is not None:
                return standing
            following = _next(repo, run, save)
            if following == number:
                raise error from None  # nothing was made
            number = following
        else:
            return Grave(run=run, save=save, number=number, since=math.inf)


def _last(repo: Repository, run: str, save: SaveId) -> Grave | None:
    return _buried(run, listed(repo.store, tomb_key(run, save))).get(save)


def _next(repo: Repository, run: str, save: SaveId) -> int:
    """The number that the next tomb of a save that stands has."""
    found = (grave_of(run, one.key) for one in listed(repo.store, tomb_key(run, save)))
    return max((number + 1 for grave in found if grave is not None for _, number, _ in [grave]), default=0)


def _buried(run: str, found: Iterable[Listed]) -> dict[SaveId, Grave]:
    highest: dict[SaveId, Grave] = {}
    undeleted: set[tuple[SaveId, int]] = set()
    for one in found:
        parsed = grave_of(run, one.key)
        if parsed is None:
            continue
        save, number, announced = parsed
        if announced:
            undeleted.add((save, number))
        standing = highest.get(save)
        if standing is None or (number, not announced) > (standing.number, False):
            highest[save] = Grave(run=run, save=save, number=number, since=one.modified)
    return {save: grave for save, grave in highest.items() if (save, grave.number) not in undeleted}
