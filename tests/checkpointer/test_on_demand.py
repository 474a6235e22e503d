"""A loop that saves because somebody asks: through the store, or by a signal."""

import os
import signal
import threading
import time

import numpy as np
import pytest

import everstep as es
from everstep.errors import Fenced, StoreUnavailable
from everstep.events import RequestsUnheard
from everstep.repository.attempts import claim
from everstep.repository.opening import open_repository
from everstep.repository.requests import answered, ask, waiting
from everstep.store.count import Count
from everstep.store.memory import MemoryStore


@pytest.fixture(autouse=True)
def _watching(monkeypatch):
    """A look every 20 ms."""
    monkeypatch.setenv("EVERSTEP_WATCH", "0.02s")


class Training:
    """A loop whose body does what a test wants; ``reasons`` are those of the checkpoints, by step."""

    def __init__(self, store=None, **options):
        self.store = Count(store or MemoryStore())
        self.options = {"listener": lambda _event: None, **options}
        self.state = {"w": np.zeros(1000), "n": 0}

    def run(self, until, body):
        """One launch."""
        with es.Checkpointer(self.store, "run", **self.options) as ckpt:
            for step in ckpt.loop(self.state, until=until):
                self.state["w"][:] = self.state["n"] = step + 1
                body(step + 1)

    @property
    def repository(self):
        return open_repository(self.store, create=False)

    @property
    def reasons(self):
        with es.Checkpointer(self.store, "run") as ckpt:
            return {one.step: one.reason for one in ckpt.checkpoints()[::-1]}

    def saved_at(self, step):
        state = {"w": np.ones(1000), "n": -1}
        with es.Checkpointer(self.store, "run") as ckpt:
            ckpt.restore(state, step=step)
        return state["n"] == step and (state["w"] == step).all()

    def looks(self):
        return sum(1 for verb, key in self.store.log if verb == "list" and "/requests/" in key)


class Person:
    """Asks when told to, and sees to it that the step lasts until the training has heard."""

    def __init__(self, training):
        self.training = training
        self.requests = []

    def ask(self, owner="ada@here"):
        self.requests.append(ask(self.training.repository, "run", owner=owner))
        self.heard()

    def heard(self):
        """A look that began now has ended, for another one has begun after it."""
        wanted, end = self.training.looks() + 3, time.monotonic() + 20
        while self.training.looks() < wanted:
            assert time.monotonic() < end
            time.sleep(0.002)

    def answers(self):
        return [answered(self.training.repository, "run", one) for one in self.requests]


def test_a_request_is_a_save_at_the_end_of_the_step_and_is_answered():
    """No save is due for a thousand steps: the one who asks gets the step that is being done."""
    training = Training(every=100_000)
    person = Person(training)

    def body(done):
        if done == 5:
            person.ask()

    training.run(20, body)
    assert training.reasons == {5: "asked", 20: "end"}
    assert [save.step for save in person.answers()] == [5]
    assert training.saved_at(5)
    assert waiting(training.repository, "run") == ()


def test_a_signal_is_a_save_at_the_end_of_the_step():
    """Two before one boundary are one save."""
    training = Training()

    def body(done):
        for _ in range(2 if done == 7 else 0):
            os.kill(os.getpid(), signal.SIGUSR2)

    before = signal.getsignal(signal.SIGUSR2)
    training.run(20, body)
    assert training.reasons == {7: "asked", 20: "end"}
    assert training.saved_at(7)
    assert signal.getsignal(signal.SIGUSR2) is before


def test_the_signal_is_a_setting(monkeypatch):
    """EVERSTEP_SAVE_SIGNAL names another one, or none."""
    monkeypatch.setenv("EVERSTEP_SAVE_SIGNAL", "SIGHUP")
    training = Training()
    training.run(9, lambda done: os.kill(os.getpid(), signal.SIGHUP) if done == 4 else None)
    assert training.reasons == {4: "asked", 9: "end"}
    monkeypatch.setenv("EVERSTEP_SAVE_SIGNAL", "none")
    heard = []
    before = signal.signal(signal.SIGUSR2, lambda *_: heard.append(1))
    try:
        Training().run(9, lambda done: os.kill(os.getpid(), signal.SIGUSR2) if done == 4 else None)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert heard == [1]


def test_a_save_that_is_due_serves_who_asked_and_no_second_one_is_made():
    """Step 10 is saved anyway."""
    training = Training(every=10)
    person = Person(training)

    def body(done):
        if done == 10:
            person.ask()

    training.run(15, body)
    assert training.reasons == {10: "due", 15: "end"}
    assert [save.step for save in person.answers()] == [10]


def test_the_last_save_serves_who_asked_before_it():
    """The one who asks in the last step gets the end."""
    training = Training()
    person = Person(training)

    def body(done):
        if done == 5:
            person.ask()

    training.run(5, body)
    assert training.reasons == {5: "end"}
    assert [save.step for save in person.answers()] == [5]


def test_a_stop_serves_who_asked_before_it():
    """A notice and a request at one boundary: one save, and both are told."""
    training = Training()
    person = Person(training)

    def body(done):
        if done == 5:
            person.ask()
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit) as exit_:
        training.run(50, body)
    assert exit_.value.code == 75
    assert training.reasons == {5: "notice"}
    assert [save.step for save in person.answers()] == [5]


class Slow(MemoryStore):
    """A store whose packs take their time while ``until`` is not set."""

    def __init__(self):
        super().__init__()
        self.free = threading.Event()
        self.begun = threading.Event()

    def create(self, key, body):
        if key.startswith("packs/"):
            self.begun.set()
            assert self.free.wait(20)
        super().create(key, body)


@pytest.mark.parametrize("busy", ["wait", "skip"])
def test_a_request_during_a_save_is_served_by_the_next_one_and_training_does_not_stand_still(busy):
    """The save under way is of an earlier state: the request waits for its end, the training does not."""
    store = Slow()
    training = Training(store, busy=busy)
    person = Person(training)
    freed = []

    def body(done):
        if done == 3:
            os.kill(os.getpid(), signal.SIGUSR2)
        if done == 4:
            assert store.begun.wait(20)
            person.ask()
        if done == 30:
            assert person.answers() == [None]
            store.free.set()
        if done > 30 and not freed and person.answers() != [None]:
            freed.append(done)
        if done > 30 and not freed:
            time.sleep(0.01)

    training.run(500, body)
    reasons = training.reasons
    steps = [step for step, reason in reasons.items() if reason == "asked"]
    assert steps[0] == 3
    assert len(steps) == 2
    assert 30 <= steps[1] < 500
    assert [save.step for save in person.answers()] == [steps[1]]


def test_a_fenced_launch_does_not_answer_and_the_newer_one_does():
    """The older one finds the request too; its save is refused, and what it asked for is left to the newer."""
    training = Training()
    person = Person(training)

    def older(done):
        if done == 3:
            claim(training.repository, "run", owner="a newer launch")
            person.ask()
        time.sleep(0.005)

    with pytest.raises(Fenced):
        training.run(1000, older)
    assert person.answers() == [None]

    def newer(done):
        if done == 1:
            person.heard()

    training.run(5, newer)
    assert [(save.step, save.attempt) for save in person.answers()] == [(1, 3)]


def test_a_training_without_requests_pays_a_list_for_each_look_and_nothing_for_a_step(monkeypatch):
    """However many steps it does; the setting says how often it looks, 0 never."""
    training = Training()
    store, person = training.store, Person(training)
    marks = []

    def body(done):
        if done in {100, 5000}:
            marks.append((time.monotonic(), len(store.log)))
        if done == 2500:
            person.heard()

    training.run(5001, body)
    (began, first), (ended, last) = marks
    asked = store.log[first:last]
    assert {(verb, key) for verb, key in asked} == {("list", "runs/run/requests/")}
    assert 2 <= len(asked) <= (ended - began) / 0.02 + 1
    for setting in ("0", "1h"):
        monkeypatch.setenv("EVERSTEP_WATCH", setting)
        store.clear()
        training.run({"0": 5050, "1h": 5100}[setting], lambda _done: None)
        assert not [key for verb, key in store.log if "requests" in key]


def test_a_store_that_hides_requests_does_not_hurt_the_training():
    """It is told once as an event, and the steps and saves go on."""

    class Hidden(MemoryStore):
        def list(self, prefix, after=""):
            if "requests" in prefix:
                raise StoreUnavailable("not now")
            return super().list(prefix, after)

    heard = []
    training = Training(Hidden(), every=5, listener=heard.append)
    training.run(10, lambda _done: time.sleep(0.03))
    told = [event for event in heard if isinstance(event, RequestsUnheard)]
    assert [event.run for event in told] == ["run"]
    assert "not now" in told[0].error
    assert training.reasons == {5: "due", 10: "end"}
