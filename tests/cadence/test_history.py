"""Lives of a run's attempts, from the records in its store."""

import pytest
from msgspec.structs import replace

from everstep.cadence import Life
from everstep.cadence.failures import seen
from everstep.cadence.history import lives
from everstep.errors import StoreUnavailable
from everstep.format.index import Meta
from everstep.repository.attempts import claim
from everstep.repository.catalogue import find
from everstep.repository.fork import fork
from everstep.repository.keys import attempt_key, commit_key
from everstep.repository.repository import Repository
from everstep.repository.saves import abort, begin, commit, write_index
from everstep.store.count import Count
from tests.repository.worlds import make_index, no_sleep, world


class Clock:
    """A clock that is set by hand."""

    def __init__(self):
        self.now = 1_700_000_000.0

    def __call__(self):
        return self.now


class History:
    """A run whose attempts live for given times."""

    def __init__(self):
        made = world()
        self.clock = Clock()
        self.repo = Repository(store=made.store, record=made.record, clock=self.clock, entropy=made.entropy)
        self.saves = []

    def attempt(self, *saves, step=1):
        """One attempt that saves after so many seconds, each time for a reason."""
        attempt = claim(self.repo, "run", owner="me")
        for seconds, reason in saves:
            self.clock.now += seconds
            self.save(attempt, step, reason)
            step += 1
        return attempt.number

    def save(self, attempt, step, reason):
        """A whole save."""
        save = begin(self.repo, attempt, step)
        index = make_index(save, {"x": b"1"}, store=self.repo.store)
        write_index(self.repo, save, replace(index, meta=Meta(reason=reason)))
        self.saves.append(commit(self.repo, save, timeout_s=0, sleep=no_sleep))


def looking(history, store):
    """The history's repository through another store object."""
    repo = history.repo
    return Repository(store=store, record=repo.record, clock=repo.clock, entropy=repo.entropy)


@pytest.fixture
def history():
    """An empty run."""
    return History()


def test_attempts_are_told_by_how_they_ended(history):
    """Lost, noticed, finished, without a save, and the one that runs."""
    history.attempt((100, "due"), (200, "due"))
    history.attempt((50, "due"), (75, "notice"))
    history.attempt((60, "asked"))
    history.attempt()
    history.attempt((10, "due"), (500, "end"))
    current = history.attempt()
    history.clock.now += 33
    assert lives(history.repo, "run", current=current) == (
        Life(attempt=1, up_s=300, ended="lost"),
        Life(attempt=2, up_s=125, ended="noticed"),
        Life(attempt=3, up_s=60, ended="lost"),
        Life(attempt=4, up_s=0, ended="lost"),
        Life(attempt=5, up_s=510, ended="finished"),
        Life(attempt=6, up_s=33, ended="running"),
    )
    counted = seen(lives(history.repo, "run", current=current))
    assert (counted.lost, counted.announced, counted.up_s) == (2, 1, 1028)


def test_what_was_saved_by_hand_tells_nothing_of_its_end(history):
    """Nor does a fork, which is an attempt too."""
    history.attempt((100, "due"), (200, ""))
    history.attempt((10, "due"))
    assert [life.attempt for life in lives(history.repo, "run", current=3)] == [2]
    fork(history.repo, find(history.repo, "run"), "other", owner="me")
    assert lives(history.repo, "other", current=2) == ()


def test_times_that_run_backwards_are_left_out(history):
    """A clock that was set; the attempt that runs has lived for nothing then."""
    history.attempt((-50, "due"))
    history.attempt((70, "due"))
    current = history.attempt()
    history.clock.now -= 1000
    assert [(life.attempt, life.up_s) for life in lives(history.repo, "run", current=current)] == [
        (2, 70),
        (3, 0),
    ]


def test_a_save_that_was_given_up_is_no_sign_of_life(history):
    """The one before it is."""
    number = history.attempt((100, "due"))
    attempt = claim(history.repo, "run", owner="me", number=number + 1)
    history.clock.now += 40
    history.save(attempt, 1, "due")
    history.clock.now += 40
    abort(history.repo, begin(history.repo, attempt, 2), "a test")
    told = lives(history.repo, "run", current=number + 2)
    assert [life.up_s for life in told] == [100, 40]


def test_damaged_records_are_passed_over(history):
    """What is left is told."""
    for seconds in (100, 200, 300):
        history.attempt((seconds, "due"))
    store = history.repo.store
    for key in (attempt_key("run", 1), commit_key("run", history.saves[1].save)):
        store.delete(key)
        store.create(key, b"{no json")
    assert [life.attempt for life in lives(history.repo, "run", current=9)] == [3]


def test_newer_attempts_are_not_told(history):
    """One that is fenced already must not count its successor."""
    for _ in range(3):
        history.attempt((10, "due"))
    assert [life.ended for life in lives(history.repo, "run", current=2)] == ["lost", "running"]


def test_few_requests_however_many_attempts_and_saves(history):
    """The newest 24 attempts, three requests for each, and one list."""
    for _ in range(30):
        history.attempt(*[(10, "due")] * 5)
    counted = Count(history.repo.store)
    told = lives(looking(history, counted), "run", current=30)
    assert [life.attempt for life in told] == list(range(7, 31))
    assert sum(counted.calls.values()) == 1 + 23 * 3 + 1


def test_a_store_out_of_reach_is_an_error(history):
    """It is for the caller to say what then."""
    history.attempt((10, "due"))

    class Away:
        def __getattr__(self, name):
            raise StoreUnavailable("away")

    with pytest.raises(StoreUnavailable):
        lives(looking(history, Away()), "run", current=1)
