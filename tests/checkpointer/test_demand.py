"""What one rank knows of saves that are asked for: by requests in the store, and by a signal."""

import os
import signal
import time

import pytest

from everstep.checkpointer.demand import Demand
from everstep.errors import AccessDenied, StoreUnavailable
from everstep.repository.attempts import claim
from everstep.repository.keys import request_key
from everstep.repository.requests import answered, ask, waiting, withdraw
from everstep.store.count import Count
from everstep.store.memory import MemoryStore
from everstep.store.retry import Retry
from tests.repository.worlds import overwrite, put, world


class Gone(MemoryStore):
    """A store that can be out of reach; ``before`` is called before each verb that comes through."""

    error = None

    def before(self, verb, key):
        """Nothing."""

    def _called(self, verb, key):
        self.before(verb, key)
        if self.error is not None:
            raise self.error

    def create(self, key, body):
        self._called("create", key)
        super().create(key, body)

    def list(self, prefix, after=""):
        self._called("list", prefix)
        return super().list(prefix, after)

    def get(self, key, limit):
        self._called("get", key)
        return super().get(key, limit)


class Rig:
    """A repository, and a demand on it that looks every 10 ms."""

    def __init__(self, store=None):
        self.inner = store or Gone()
        self.store = Count(self.inner)
        self.repo = world(self.store)
        self.attempt = claim(self.repo, "run", owner="test")
        self.step = 0
        self.busy = False
        self.troubles = []

    def demand(self, *, watched=True, watch_s=0.01, number=signal.SIGUSR2, first_s=0.0):
        return Demand(
            "run",
            watched=self.repo if watched else None,
            watch_s=watch_s,
            number=number,
            busy=lambda: self.busy,
            trouble=self.troubles.append,
            first_s=first_s,
        )

    def save(self):
        """A committed checkpoint."""
        self.step += 1
        return put(self.repo, self.attempt, self.step, {"a": b"1"})


def until(found, *, seconds=10):
    """Wait until something is true, and give it."""
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end
        time.sleep(0.002)
    return value


def looks(rig):
    """How often the requests were listed."""
    return sum(1 for verb, key in rig.store.log if verb == "list" and "/requests/" in key)


def after_looks(rig, count=2):
    """Wait until so many looks more have begun, so that one of them was whole."""
    begun = looks(rig)
    until(lambda: looks(rig) >= begun + count + 1)


def test_a_request_is_wanted_until_a_save_takes_it_and_answered_once_that_is_durable():
    """Who asked is told; a save that began before does not count, and nothing is answered before the commit."""
    rig = Rig()
    with rig.demand() as demand:
        assert demand.wanted() == ""
        request = ask(rig.repo, "run", owner="ada@here")
        assert until(demand.wanted) == "asked by ada@here"
        demand.began()
        assert demand.wanted() == ""
        after_looks(rig)
        assert demand.wanted() == ""
        assert answered(rig.repo, "run", request) is None
        checkpoint = rig.save()
        demand.served(checkpoint)
        assert answered(rig.repo, "run", request) == checkpoint.save
        after_looks(rig)
        assert demand.wanted() == ""
    assert rig.troubles == []


def test_a_request_that_comes_while_a_save_is_under_way_is_for_the_next_one():
    """It waits until that save has ended, and is not answered with it."""
    rig = Rig()
    with rig.demand() as demand:
        first = ask(rig.repo, "run", owner="ada")
        until(demand.wanted)
        demand.began()
        rig.busy = True
        second = ask(rig.repo, "run", owner="bob")
        after_looks(rig)
        assert demand.wanted() == "", "training would stand still until the save before has ended"
        one = rig.save()
        demand.served(one)
        rig.busy = False
        assert answered(rig.repo, "run", second) is None
        assert until(demand.wanted) == "asked by bob"
        demand.began()
        two = rig.save()
        demand.served(two)
        assert [answered(rig.repo, "run", each) for each in (first, second)] == [one.save, two.save]


def test_every_save_serves_what_was_asked_before_it():
    """One that is due anyway, and two who asked at once: one save for all."""
    rig = Rig()
    with rig.demand() as demand:
        requests = [ask(rig.repo, "run", owner=owner) for owner in ("ada", "bob")]
        until(lambda: len(demand._waiting) == 2)
        demand.began()
        checkpoint = rig.save()
        demand.served(checkpoint)
        assert {answered(rig.repo, "run", each) for each in requests} == {checkpoint.save}
        assert waiting(rig.repo, "run") == ()


def test_a_save_that_failed_serves_nobody():
    """What it had taken waits for the next one."""
    rig = Rig()
    with rig.demand() as demand:
        request = ask(rig.repo, "run", owner="ada")
        until(demand.wanted)
        demand.began()
        demand.began()
        until(demand.wanted)
        demand.began()
        checkpoint = rig.save()
        demand.served(checkpoint)
        assert answered(rig.repo, "run", request) == checkpoint.save


def test_a_request_that_is_taken_back_is_forgotten():
    """A person who does not wait any more costs no save."""
    rig = Rig()
    with rig.demand() as demand:
        request = ask(rig.repo, "run", owner="ada")
        until(demand.wanted)
        withdraw(rig.repo, "run", request)
        until(lambda: demand.wanted() == "")


def test_a_list_from_before_the_answer_asks_for_no_second_save():
    """The look was on its way while the save was committed and answered."""
    rig = Rig()
    demand = rig.demand(watched=True, watch_s=0)
    with demand:
        request = ask(rig.repo, "run", owner="ada")
        demand._look(rig.repo)
        demand.began()
        checkpoint = rig.save()

        def meanwhile(verb, key):
            """What another thread does between the list and its use."""
            rig.inner.before = lambda *_: None
            demand.served(checkpoint)

        other = ask(rig.repo, "run", owner="bob")
        rig.inner.before = lambda verb, key: meanwhile(verb, key) if verb == "get" else None
        demand._look(rig.repo)
        assert demand._waiting == {other}
        assert answered(rig.repo, "run", request) == checkpoint.save
        demand._look(rig.repo)
        assert demand._waiting == {other}


def test_the_next_launch_serves_what_a_crash_left():
    """Died between commit and answer: the request still waits, and one more save is made for it."""
    rig = Rig()
    request = ask(rig.repo, "run", owner="ada")
    with rig.demand() as demand:
        until(demand.wanted)
        demand.began()
        rig.save()
    with rig.demand() as again:
        assert until(again.wanted) == "asked by ada"
        again.began()
        checkpoint = rig.save()
        again.served(checkpoint)
    assert answered(rig.repo, "run", request) == checkpoint.save


def test_a_store_out_of_reach_is_told_once_and_looked_at_again():
    """The training never sees it; when the store is back, so are the requests; the next outage is told again."""
    rig = Rig()
    with rig.demand() as demand:
        for outage in (1, 2):
            request = ask(rig.repo, "run", owner="ada")
            until(demand.wanted)
            rig.inner.error = StoreUnavailable("gone")
            after_looks(rig)
            assert len(rig.troubles) == outage
            assert demand.wanted(), "what is known is not forgotten"
            rig.inner.error = None
            after_looks(rig)
            demand.began()
            demand.served(rig.save())
            assert answered(rig.repo, "run", request)
    assert all(isinstance(one, StoreUnavailable) for one in rig.troubles)


def test_an_answer_that_cannot_be_written_is_tried_again():
    """The checkpoint is durable, and the one who asked learns it as soon as the store is back."""
    rig = Rig()
    with rig.demand() as demand:
        request = ask(rig.repo, "run", owner="ada")
        until(demand.wanted)
        demand.began()
        checkpoint = rig.save()
        rig.inner.error = AccessDenied("no")
        demand.served(checkpoint)
        after_looks(rig)
        assert demand.wanted() == ""
        rig.inner.error = None
        assert until(lambda: answered(rig.repo, "run", request)) == checkpoint.save
    assert len(rig.troubles) == 1


def test_who_may_not_answer_saves_once_all_the_same():
    """A role that can read requests and not answer them: no save after save for one person."""

    class Mute(Gone):
        def create(self, key, body):
            if key.endswith(".answer.json"):
                raise AccessDenied("no", key=key)
            super().create(key, body)

    rig = Rig(Mute())
    with rig.demand() as demand:
        ask(rig.repo, "run", owner="ada")
        until(demand.wanted)
        demand.began()
        demand.served(rig.save())
        after_looks(rig)
        assert demand.wanted() == ""
        ask(rig.repo, "run", owner="bob")
        assert until(demand.wanted) == "asked by bob"
    assert len(rig.troubles) == 1


def test_the_end_of_the_loop_tries_once_more_to_answer():
    """The last save was for somebody, and the store was away for a moment."""
    rig = Rig()
    with rig.demand(watch_s=0) as demand:
        request = ask(rig.repo, "run", owner="ada")
        demand._look(rig.repo)
        demand.began()
        checkpoint = rig.save()
        rig.inner.error = StoreUnavailable("gone")
        demand.served(checkpoint)
        rig.inner.error = None
    assert answered(rig.repo, "run", request) == checkpoint.save


def test_no_patience_is_spent_on_a_look():
    """A training's store retries for minutes; a look is made again anyway, and the end of the loop must not wait."""
    rig = Rig()
    naps = []
    rig.inner.error = StoreUnavailable("gone")
    rig.repo = world(rig.inner.__class__()).__class__(
        store=Retry(rig.inner, sleep=naps.append),
        record=rig.repo.record,
        clock=rig.repo.clock,
        entropy=rig.repo.entropy,
    )
    with rig.demand():
        until(lambda: rig.troubles)
    assert naps == []


@pytest.mark.parametrize("body", [b"{}", b"\xff" * 100_000], ids=["another", "too large"])
def test_a_damaged_request_is_served_for_somebody(body):
    """Its name is enough to answer it."""
    rig = Rig()
    request = ask(rig.repo, "run", owner="ada")
    overwrite(rig.inner, request_key("run", request), body)
    with rig.demand() as demand:
        assert until(demand.wanted) == "asked by somebody"
        demand.began()
        demand.served(rig.save())
    assert answered(rig.repo, "run", request)
    assert rig.troubles == []


def test_a_name_cannot_steer_the_terminal_it_is_shown_on():
    """Whoever may write into the store may write anything there."""
    rig = Rig()
    ask(rig.repo, "run", owner="\x1b[2J" + "x" * 10_000)
    with rig.demand() as demand:
        assert until(demand.wanted) == "asked by ?[2J" + "x" * 96


def test_a_look_is_one_list_and_a_first_one_who_waits_one_read():
    """However many wait, and however long."""
    rig = Rig()
    demand = rig.demand(watch_s=0)
    with demand:
        for _ in range(5):
            ask(rig.repo, "run", owner="ada")
        rig.store.clear()
        for _ in range(3):
            demand._look(rig.repo)
        assert rig.store.calls == {"list": 3, "get": 1}
        for _ in range(10_000):
            demand.wanted()
        assert sum(rig.store.calls.values()) == 4


@pytest.mark.parametrize("how", [{"watch_s": 0}, {"watched": False}], ids=["never", "another rank"])
def test_who_does_not_watch_asks_nothing_of_the_store(how):
    """EVERSTEP_WATCH=0, and every rank but the first."""
    rig = Rig()
    rig.store.clear()
    with rig.demand(**how) as demand:
        demand.began()
        demand.served(rig.save())
        assert demand.wanted() == ""
    assert looks(rig) == 0


def test_the_thread_ends_with_the_loop():
    """No look after it, and none before it; a second loop has its own."""
    rig = Rig()
    demand = rig.demand(first_s=0.0)
    rig.store.clear()
    for _ in range(2):
        with demand:
            until(lambda: looks(rig) > 2)
        rig.store.clear()
        time.sleep(0.05)
        assert looks(rig) == 0


def test_a_signal_asks_for_one_save():
    """It is wanted until a save begins, on ranks without a store too; a second one meanwhile is for the next save."""
    rig = Rig()
    with rig.demand(watched=False) as demand:
        os.kill(os.getpid(), signal.SIGUSR2)
        os.kill(os.getpid(), signal.SIGUSR2)
        assert demand.wanted() == "SIGUSR2"
        demand.began()
        assert demand.wanted() == ""
        os.kill(os.getpid(), signal.SIGUSR2)
        assert demand.wanted() == "SIGUSR2"
        demand.served(rig.save())
        assert demand.wanted() == "SIGUSR2"
        rig.busy = True
        assert demand.wanted() == ""
