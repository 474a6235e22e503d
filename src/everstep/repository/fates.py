"""What becomes of a pruned save: swept or undeleted, by the one object that says which. The first writer wins."""

from __future__ import annotations

from everstep.errors import AlreadyExists, CorruptObject, ObjectNotFound, StoreUnavailable
from everstep.format.limits import FORMAT_MAJOR
from everstep.format.records import SweepRecord
from everstep.format.wire import to_bytes
from everstep.repository.keys import sweep_key, undeleted_key
from everstep.repository.objects import create_mark, read_record
from everstep.repository.repository import Repository
from everstep.repository.tombs import Grave

__all__ = ["doom", "raise_up"]


def doom(repo: Repository, grave: Grave) -> bool:
    """Decide that the save is swept; whether that holds. If not, it was undeleted, and stands again afterwards.

    One request when nobody decided before. Raises an `IntegrityError` when what was decided cannot be read.
    """
    if _decide(repo, grave, undeleted=False).undeleted:
        _announce(repo, grave)
        return False
    return True


def raise_up(repo: Repository, grave: Grave) -> bool:
    """Decide that the save stands again; whether that holds. If not, its bytes may be gone."""
    if not _decide(repo, grave, undeleted=True).undeleted:
        return False
    _announce(repo, grave)
    return True


def _decide(repo: Repository, grave: Grave, *, undeleted: bool) -> SweepRecord:
    """Create the record and return the one that stands; it is read back when that is not certain."""
    key = sweep_key(grave.run, grave.save, grave.number)
    record = SweepRecord(
        format=FORMAT_MAJOR,
        run=grave.run,
        save=str(grave.save),
        created=repo.clock(),
        undeleted=undeleted,
    )
    try:
        repo.store.create(key, to_bytes(record))
    except (AlreadyExists, StoreUnavailable) as error:
        try:
            standing = read_record(repo.store, key, SweepRecord)
        except ObjectNotFound:
            raise error from None
        if (standing.run, standing.save) != (record.run, record.save):
            raise CorruptObject(f"{key} is of {standing.run} {standing.save}", key=key) from None
        return standing
    return record


def _announce(repo: Repository, grave: Grave) -> None:
    create_mark(repo.store, undeleted_key(grave.run, grave.save, grave.number), b"{}")
