"""Waiting for a save that a training elsewhere is asked for, with a clock that only waiting moves."""

import pytest
from msgspec.structs import replace

from everstep.errors import AccessDenied, CheckpointPruned, StoreUnavailable, TryAgain
from everstep.repository.attempts import claim
from everstep.repository.keys import requests_prefix, tomb_key
from everstep.repository.requests import answer, ask, waiting
from everstep.repository.saves import begin, commit, write_index
from everstep.spot.asking import standing, wait_for_save
from everstep.store.count import Count
from everstep.store.fault import Crashed
from everstep.store.memory import MemoryStore
from tests.repository.worlds import Clockwork, keys, make_index, plant, world


class Scene:
    """A run with one attempt, and a wait in which something happens at given seconds."""

    def __init__(self, store=None):
        self.store = Count(store or MemoryStore())
        self.repo = world(self.store)
        self.attempt = claim(self.repo, "run", owner="host:1")
        self.clock = Clockwork()
        self.words = []
        self.events = []

    def save(self, step, reason=""):
        """A checkpoint of the newest attempt."""
        save = begin(self.repo, self.attempt, step)
        index = make_index(save, {"a": b"%d" % step}, store=self.repo.store)
        index = replace(index, meta=replace(index.meta, reason=reason))
        write_index(self.repo, save, index)
        return commit(self.repo, save, timeout_s=0)

    def at(self, seconds, do):
        """Something that happens in the middle of the wait."""
        self.events.append((seconds, do))

    def wait(self, timeout_s=600.0):
        """Ask and wait."""
        before = standing(self.repo, "run")
        self.request = ask(self.repo, "run", owner="ada")
        self.store.clear()

        def sleep(seconds):
            assert seconds > 0
            self.clock.sleep(seconds)
            for event in [one for one in self.events if one[0] <= self.clock.seconds]:
                self.events.remove(event)
                event[1]()

        return wait_for_save(
            self.repo,
            "run",
            self.request,
            before,
            timeout_s=timeout_s,
            told=self.words.append,
            now=self.clock.now,
            sleep=sleep,
        )

    def left(self):
        """What is left of requests."""
        return keys(self.repo.store, requests_prefix("run"))

    def serve(self, step=7, reason="asked"):
        """The training does what it is asked for."""
        answer(self.repo, "run", self.request, self.save(step, reason).save)


def test_an_answer_ends_the_wait_and_nothing_is_left():
    """The checkpoint that was made for it, within one poll; the request and the answer are removed."""
    scene = Scene()
    scene.save(3)
    scene.at(42, scene.serve)
    assert scene.wait().step == 7
    assert 42 <= scene.clock.seconds < 44
    assert scene.left() == []
    assert [one for one in scene.words if "still waiting" not in one] == []


def test_a_run_that_was_never_trained_is_not_asked():
    """It has no attempt, or that of a fork or an import."""
    scene = Scene()
    with pytest.raises(TryAgain, match="'other' runs: it has no attempt"):
        standing(scene.repo, "other")
    for owner in ("fork", "import on host"):
        claim(scene.repo, "run", owner=owner)
        with pytest.raises(TryAgain, match=f"attempt is a {owner}"):
            standing(scene.repo, "run")


def test_a_training_that_has_finished_is_not_asked():
    """Its last launch has saved the end: the error names that checkpoint, and exits 5."""
    scene = Scene()
    scene.save(400, "end")
    with pytest.raises(TryAgain, match="run@400") as caught:
        scene.wait()
    assert caught.value.exit_code == 5
    assert scene.left() == []


def test_a_later_launch_of_a_finished_run_is_asked():
    """With more steps to do it trains again: the old end says nothing of the new attempt."""
    scene = Scene()
    scene.save(400, "end")
    scene.attempt = claim(scene.repo, "run", owner="host:2")
    scene.at(3, scene.serve)
    assert scene.wait().step == 7


def test_nobody_answers():
    """After the time-out the words say who was asked, what is newest, and what to look at; the request is gone."""
    scene = Scene()
    scene.save(3)
    with pytest.raises(TryAgain) as caught:
        scene.wait(timeout_s=60)
    assert scene.clock.seconds == 60
    assert "attempt 1 (host:1, 1 rank)" in caught.value.message
    assert "run@3" in caught.value.message
    assert "EVERSTEP_WATCH" in caught.value.hint
    assert scene.left() == []
    assert waiting(scene.repo, "run") == ()


def test_an_answer_in_the_last_moment_counts():
    """It came between the last poll and the taking back."""

    class Late(MemoryStore):
        scene = None

        def delete(self, key):
            super().delete(key)
            if self.scene is not None:
                scene, self.scene = self.scene, None
                scene.serve()

    store = Late()
    scene = Scene(store)
    store.scene = scene
    assert scene.wait(timeout_s=60).step == 7
    assert scene.left() == []


def test_a_training_that_ends_meanwhile_has_ten_seconds_to_answer():
    """Its last save may have been made for the request; if it was not, the wait is over long before the time-out."""
    scene = Scene()

    def slowly():
        save = scene.save(400, "end").save
        scene.at(37, lambda: answer(scene.repo, "run", scene.request, save))

    scene.at(20, slowly)
    assert scene.wait().step == 400
    assert scene.clock.seconds > 35
    scene = Scene()
    scene.at(20, lambda: scene.save(400, "end"))
    with pytest.raises(TryAgain, match="run@400"):
        scene.wait()
    assert scene.clock.seconds < 50
    assert scene.left() == []


def test_a_training_that_is_stopped_hands_the_request_on():
    """It was told to stop; its next launch answers; both are told of."""
    scene = Scene()

    def launch():
        scene.attempt = claim(scene.repo, "run", owner="host:2")

    scene.at(20, lambda: scene.save(41, "notice"))
    scene.at(100, launch)
    scene.at(130, scene.serve)
    assert scene.wait().step == 7
    told = [one for one in scene.words if "still waiting" not in one]
    assert len(told) == 2
    assert "attempt 1" in told[0]
    assert "told to stop" in told[0]
    assert "attempt 2 (host:2" in told[1]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), StoreUnavailable("gone"), Crashed("x")])
def test_whoever_stops_waiting_takes_the_request_back(error):
    """Ctrl-C, a store that goes away for good: no training saves for nobody."""
    scene = Scene()

    def stop():
        raise error

    scene.at(5, stop)
    with pytest.raises(type(error)):
        scene.wait()
    assert scene.left() == []


def test_who_may_not_delete_is_served_all_the_same():
    """The role of the one who asks may be to read and create: the answer counts, and the time-out says what is left."""

    class Kept(MemoryStore):
        def delete(self, key):
            raise AccessDenied("no", key=key)

    scene = Scene(Kept())
    scene.at(5, scene.serve)
    assert scene.wait().step == 7
    assert len(scene.left()) == 2
    with pytest.raises(TryAgain, match="could not be taken back"):
        scene.wait(timeout_s=10)


def test_a_checkpoint_that_is_pruned_already_is_no_checkpoint():
    """A strict policy was faster than the wait: that is said, with the step."""
    scene = Scene()

    def both():
        save = scene.save(7, "asked").save
        answer(scene.repo, "run", scene.request, save)
        scene.save(8)
        plant(scene.repo.store, tomb_key("run", save))

    scene.at(5, both)
    with pytest.raises(CheckpointPruned, match="run@7"):
        scene.wait()


def test_what_waiting_costs():
    """Ten minutes: a small read each second, a look of two lists and a read each fifteen."""
    scene = Scene()
    scene.save(3)
    with pytest.raises(TryAgain):
        scene.wait(timeout_s=600)
    assert scene.store.calls["get"] <= 600 + 3 * 600 / 15 + 15
    assert scene.store.calls["list"] <= 3 * 600 / 15
