"""The agreement on a step with real threads, and with real processes that reduce in every step."""

import threading
import time

import pytest

from everstep.errors import RanksMissing, StoreUnavailable
from everstep.ranks import Agreement, Kind
from everstep.ranks.local_exchange import LocalExchange
from tests.ranks.processes import run_ranks
from tests.ranks.threads import FASTER, all_ranks


def agreement(ranks, **more):
    """An agreement whose seconds are short."""
    given = {"done": 0, "until": 100_000, "patience_s": 600.0, "watch_s": 0.05}
    return Agreement(ranks, now=lambda: time.monotonic() * FASTER, **{**given, **more})


def walk(ranks, *, asks=(), until=100_000, **more):
    """Train until told to stop: what was told, by step. ``asks``: rank, step and kind of a request."""
    agreed = agreement(ranks, until=until, **more)
    told = []
    try:
        for step in range(until + 1):
            asked = agreed.due(step, step_s=0.001)
            if asked is not None:
                told.append((step, asked.kind, asked.rank, asked.reason))
                if asked.kind is Kind.STOP:
                    break
            for rank, when, kind in asks:
                if (rank, when) == (ranks.rank, step):
                    agreed.request(kind, f"asked at {step}")
            time.sleep(0.001)
    finally:
        agreed.close()
    return told


def test_one_rank_asks_and_all_stop_at_one_step():
    """They are told who asked, and why; the listening threads are gone after."""
    before = threading.active_count()
    results = all_ranks(4, lambda ranks: walk(ranks, asks=[(2, 10, Kind.STOP)]))
    assert len(set(map(tuple, results.values()))) == 1, results
    [(step, kind, rank, reason)] = results[0]
    assert (kind, rank, reason) == (Kind.STOP, 2, "asked at 10")
    assert step >= 10
    assert threading.active_count() == before


def test_a_notice_on_a_rank_is_a_stop_of_all():
    """The flag that a signal sets."""
    noticed = threading.Event()
    threading.Timer(0.05, noticed.set).start()
    results = all_ranks(3, lambda ranks: walk(ranks, notice=lambda: ranks.rank == 1 and noticed.is_set()))
    assert len(set(map(tuple, results.values()))) == 1, results
    [(_, kind, rank, reason)] = results[0]
    assert (kind, rank, reason) == (Kind.STOP, 1, "notice")


def test_a_save_is_agreed_on_while_all_go_on_and_a_stop_follows():
    """Two rounds: the save is made by all at one step, then the stop; two loops after each other do not mix."""

    def does(ranks):
        return [walk(ranks, asks=[(0, 3, Kind.SAVE), (1, 200, Kind.STOP)]) for _ in range(2)]

    results = all_ranks(3, does)
    assert results[0] == results[1] == results[2]
    for loop in results[0]:
        assert [(kind, rank) for _, kind, rank, _ in loop] == [(Kind.SAVE, 0), (Kind.STOP, 1)]


def test_a_rank_that_does_not_answer_is_named():
    """Those who must wait for it raise, on all ranks; who listens waits for nobody."""

    def does(ranks):
        ranks.meet(1200)
        return None if ranks.rank == 2 else walk(ranks, asks=[(1, 5, Kind.STOP)], patience_s=20.0)

    results = all_ranks(3, does)
    for rank in (0, 1):
        assert isinstance(results[rank], RanksMissing), results
        assert results[rank].fields["missing"] == (2,)


@pytest.mark.parametrize("leaver", [0, 2])
def test_a_rank_that_left_with_an_error_is_named_at_once(leaver):
    """Its error is told; nobody waits for its promise."""

    def does(ranks):
        if ranks.rank == leaver:
            agreement(ranks).close(ValueError("bad batch"))
            return None
        return walk(ranks, asks=[(1, 5, Kind.STOP)], patience_s=10.0**6)

    results = all_ranks(3, does)
    for rank in {0, 1, 2} - {leaver}:
        assert isinstance(results[rank], RanksMissing), results
        assert results[rank].fields["missing"] == (leaver,)
        assert "ValueError: bad batch" in results[rank].message


def test_ranks_that_are_done_have_promised_all_their_steps():
    """One that is asked to stop while the others have left does its last steps."""

    def does(ranks):
        if ranks.rank != 1:
            return walk(ranks, until=20)
        time.sleep(0.2)
        return walk(ranks, until=20, asks=[(1, 5, Kind.STOP)])

    results = all_ranks(3, does)
    assert (results[0], results[2]) == ([], [])
    assert [(step, kind) for step, kind, *_ in results[1]] == [(20, Kind.STOP)]


def test_listening_asks_once_in_a_while():
    """Between requests a rank asks one question in each interval, however fast its steps are."""
    asked = []

    class Counted(LocalExchange):
        def find(self, key):
            asked.append(key)
            return super().find(key)

    def does(ranks):
        ranks.meet(1200)
        began = time.monotonic() * FASTER
        walk(ranks, watch_s=1.0, until=500)
        return time.monotonic() * FASTER - began

    took = all_ranks(2, does, exchange=Counted())
    questions = [key for key in asked if key.endswith("/request")]
    assert 2 <= len(questions) <= sum(took.values()) + 2


def test_an_exchange_out_of_reach_is_borne_for_a_while():
    """A short outage is nothing; one longer than the patience is raised at a boundary."""

    class Broken(LocalExchange):
        broken = False

        def find(self, key):
            if self.broken:
                raise StoreUnavailable("out of reach")
            return super().find(key)

    exchange = Broken()

    def does(ranks):
        agreed = agreement(ranks, patience_s=10.0)
        exchange.broken = True
        assert agreed.due(0) is None
        try:
            while True:
                agreed.due(1)
                time.sleep(0.001)
        finally:
            agreed.close()

    results = all_ranks(2, lambda ranks: ranks.meet(1200) or does(ranks), exchange=exchange)
    assert all(isinstance(result, StoreUnavailable) for result in results.values()), results


_TRAINING = """
import os, signal, sys, time, torch, torch.distributed as dist
from everstep.config import process_settings
from everstep.ranks import Agreement, Kind, open_ranks
from everstep.store.memory import MemoryStore

rank, world, place = int(os.environ["RANK_"]), int(os.environ["WORLD_"]), os.environ["PLACE"]
dist.init_process_group("gloo", store=dist.FileStore(place, world), rank=rank, world_size=world)
ranks = open_ranks(process_settings(), store=MemoryStore(), run="r")
received = []
signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
agreed = Agreement(ranks, done=0, until=10_000, notice=lambda: bool(received))
held = []
for step in range(10_000):
    asked = agreed.due(step)
    if asked is not None:
        break
    if rank == 1 and step == 21:
        os.kill(os.getpid(), signal.SIGTERM)  # and then into a collective that rank 0 has not come to
    one = torch.ones(1)
    dist.all_reduce(one)
    assert one == world
    if rank == 0 and step == 20:
        while agreed._course.promised is None:  # rank 0 is slow in this step: it is asked before it is done
            time.sleep(0.001)
agreed.close()
ranks.close()
print(step, asked.kind.value, asked.rank)
"""


def test_a_rank_that_holds_lets_those_go_that_wait_for_it_in_a_collective(tmp_path):
    """Rank 0 holds after step 21; the others wait for it inside step 22's all-reduce: they promise 22 from there."""
    ended = run_ranks(_TRAINING, 3, PLACE=str(tmp_path / "file"))
    assert [one.out for one in ended] == ["22 stop 1\n"] * 3, ended
