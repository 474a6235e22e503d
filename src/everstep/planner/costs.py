"""What a month of an interval and a retention costs in the store."""

from __future__ import annotations

import math
from dataclasses import dataclass

from everstep.planner.question import Question
from everstep.prices import BILLED_GB, MONTH_S
from everstep.transfer.layout import pack_bytes_for

__all__ = ["StoreCost", "store_cost"]

_CREATES, _CREATES_OF_RANK = 3, 1
"""A save's plan, manifest and commit record; the index of each rank. Packs come on top."""
_LISTS, _READS = 2, 2
_PRUNE_CREATES, _PRUNE_LISTS, _PRUNE_READS = 2, 16, 16
"""A prune after each save, about: a tomb and a sweep marker, lists, records. Deletes are free."""
_RANGE_BYTES = 16 * 2**20
"""A restore reads in ranges of about so many bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCost:
    """Bytes in the store, and dollars a month.

    ``stored_bytes`` is what the kept checkpoints and the one under way hold; ``billed_bytes`` more where a tier
    bills a minimum of days. ``storage`` is for bytes, ``requests`` for requests and retrieval.
    """

    stored_bytes: float
    billed_bytes: float
    storage: float
    requests: float


def store_cost(
    question: Question, *, interval_s: float, kept: int, prunes: bool, outages_per_s: float
) -> StoreCost:
    """The cost of ``kept`` checkpoints with a save every ``interval_s``, as if training went on all month.

    What did not change between saves is stored once. A save's bytes stay ``kept`` intervals in the mean (Little's
    law: what is in the store is what comes in times how long it stays), or are billed as long as the tier's minimum.
    """
    prices, new = question.prices, question.new_bytes
    shared = question.state_bytes - new
    least_days = prices.minimum_days * 86400.0 / interval_s if prunes else 0.0
    stored = shared + new * (kept + 1)
    billed = shared + new * max(kept + 1, least_days)
    saves = MONTH_S / interval_s
    restores = MONTH_S * outages_per_s
    of_rank = math.ceil(new / question.machines)
    packs = math.ceil(of_rank / pack_bytes_for(of_rank)) if of_rank else 0
    creates = _CREATES + question.machines * (_CREATES_OF_RANK + packs) + (_PRUNE_CREATES if prunes else 0)
    lists = _LISTS + (_PRUNE_LISTS if prunes else 0)
    reads = _READS + (_PRUNE_READS if prunes else 0)
    read_back = question.state_bytes / _RANGE_BYTES
    requests = (
        saves * (creates * prices.write_1k + lists * prices.list_1k + reads * prices.read_1k) / 1000
        + restores * read_back * prices.read_1k / 1000
        + restores * question.state_bytes / BILLED_GB * prices.read_gb
    )
    return StoreCost(
        stored_bytes=stored,
        billed_bytes=billed,
        storage=billed / BILLED_GB * prices.gb_month,
        requests=requests,
    )
