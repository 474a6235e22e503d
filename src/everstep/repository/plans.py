"""The plan: the first object of a save."""

from __future__ import annotations

from everstep.errors import CorruptObject
from everstep.format.ids import SaveId
from everstep.format.records import PlanRecord
from everstep.repository.keys import plan_key
from everstep.repository.objects import read_record
from everstep.repository.repository import Repository

__all__ = ["read_plan"]


def read_plan(repo: Repository, run: str, save: SaveId) -> PlanRecord:
    """The plan of a save. Raises `ObjectNotFound`, or an `IntegrityError` naming its key."""
    key = plan_key(run, save)
    record = read_record(repo.store, key, PlanRecord)
    if record.run != run or record.save != str(save):
        raise CorruptObject(f"{key} holds the plan of {record.run} {record.save}", key=key)
    return record
