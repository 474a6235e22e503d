"""What a month costs in the store."""

import time

import numpy as np
import pytest

import everstep as es
from everstep.planner import costs
from everstep.planner.costs import store_cost
from everstep.prices import BILLED_GB, MONTH_S, prices
from everstep.repository.opening import open_repository
from everstep.retention.policy import parse_keep
from everstep.retention.prune import plan_prune, prune
from everstep.store.count import Count
from everstep.store.memory import MemoryStore
from tests.planner.worlds import asked


def cost(interval_s=600.0, kept=3, prunes=True, outages_per_s=0.0, **changes):
    """The cost of one question."""
    return store_cost(
        asked(**changes), interval_s=interval_s, kept=kept, prunes=prunes, outages_per_s=outages_per_s
    )


def test_kept_checkpoints_and_the_one_under_way_are_stored_and_what_did_not_change_once():
    """A quarter of 16 GiB is new in each."""
    state = 16 * BILLED_GB
    assert cost(state_bytes=state).stored_bytes == 4 * state
    shared = cost(state_bytes=state, changed=0.25)
    assert shared.stored_bytes == 12 * BILLED_GB + 4 * 4 * BILLED_GB
    assert shared.storage == pytest.approx(28 * prices("azure-hot").gb_month)


def test_a_tier_with_minimum_days_bills_what_was_pruned_early():
    """Thirty days of saves, one each ten minutes, though three are kept; not when all are kept anyway."""
    cool = cost(prices=prices("azure-cool"))
    assert cool.billed_bytes == pytest.approx(15e9 * 30 * 144)
    assert cool.stored_bytes == 4 * 15 * 10**9
    assert cost(prices=prices("azure-cool"), kept=4320, prunes=False).billed_bytes == 15e9 * 4321


def test_requests_are_those_of_saves_and_of_restores():
    """Half as many saves cost half; a restore reads the whole state."""
    often, seldom = cost(300.0).requests, cost(600.0).requests
    assert often == pytest.approx(2 * seldom)
    cool = {"prices": prices("azure-cool")}
    read = cost(outages_per_s=10 / MONTH_S, **cool).requests - cost(**cool).requests
    assert read == pytest.approx(10 * (15e9 / BILLED_GB * 0.01 + 15e9 / 2**24 * 0.001 / 1000))


def test_more_machines_write_more_objects():
    """An index and packs of each."""
    assert cost(machines=64).requests > 3 * cost(machines=1).requests


def test_the_requests_of_a_save_and_its_prune_are_those_that_are_counted():
    """A save exactly; a prune within a factor of two, because what it remembers saves it reads."""
    store = Count(MemoryStore())
    with es.Checkpointer(store, "counted") as ckpt:
        repository = open_repository(store, create=True)
        for step in range(1, 5):
            store.clear()
            ckpt.save(step, {"weights": np.full(1000, step)}).wait()
        saved = dict(store.calls)
        store.clear()
        planned = plan_prune(repository, "counted", parse_keep("last 3"), now=time.time())
        assert prune(repository, planned, grace_s=0.0).tombed
        pruned = dict(store.calls)
    one_pack = costs._CREATES + costs._CREATES_OF_RANK + 1
    assert saved == {"create": one_pack, "list": costs._LISTS, "get": costs._READS}
    assert pruned["create"] == costs._PRUNE_CREATES
    assert costs._PRUNE_LISTS / 2 <= pruned["list"] <= costs._PRUNE_LISTS * 2
    assert costs._PRUNE_READS / 2 <= pruned["get"] <= costs._PRUNE_READS * 2
