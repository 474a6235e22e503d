"""What lies in a run's folder and is no save's: words of launches that are over, answered requests."""

from __future__ import annotations

from everstep.repository.keys import READERS, attempts_prefix, exchange_prefix
from everstep.repository.objects import listed
from everstep.repository.readers import PIN_S
from everstep.repository.repository import Repository
from everstep.repository.requests import tidy as tidy_requests
from everstep.retention.marking import PackLists
from everstep.retention.sweeping.deleting import Deleting
from everstep.retention.sweeping.store_time import StoreTime
from everstep.store.protocol import Listed

__all__ = ["tidy", "tidy_pins"]

_OVER_S = 86_400.0
"""A launch's last word is so much older than the newest attempt, by the store's clock: that launch is over."""


def tidy_pins(repo: Repository, time: StoreTime, deleting: Deleting) -> None:
    """Remove pins that crashes have left and that do not count any more; one list."""
    old = [one for one in listed(repo.store, READERS) if time.passed(one.modified, PIN_S)]
    deleting.delete_objects((one.key, one.size) for one in old)


def tidy(repo: Repository, run: str, deleting: Deleting, lists: PackLists) -> None:
    """Remove them; once for each run in the life of ``lists``. Two lists when there is nothing.

    A launch whose last word came a day or more before the newest attempt was claimed is over; the one that spoke last
    is never touched.
    """
    if run in lists.tidied or deleting.stopped:
        return
    lists.tidied.add(run)
    deleting.objects += 2 * tidy_requests(repo, run)
    prefix = exchange_prefix(run)
    launches: dict[str, list[Listed]] = {}
    for one in listed(repo.store, prefix):
        launches.setdefault(one.key.removeprefix(prefix).partition("/")[0], []).append(one)
    if len(launches) < 2:  # the one that spoke last stays
        return
    claimed = max((one.modified for one in listed(repo.store, attempts_prefix(run))), default=0.0)
    spoke = {launch: max(one.modified for one in words) for launch, words in launches.items()}
    last = max(spoke, key=lambda launch: spoke[launch])
    for launch, words in launches.items():
        if launch != last and spoke[launch] < claimed - _OVER_S:
            deleting.delete_objects((one.key, one.size) for one in words)
