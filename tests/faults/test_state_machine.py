"""Random histories of launches, saves, rollbacks, forks, tags and crashes, held against a dictionary."""

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import everstep as es
from everstep.repository.catalogue import checkpoints, find
from everstep.repository.fork import fork
from everstep.repository.opening import open_repository
from everstep.repository.verify import verify
from everstep.store.fault import Crashed, Fault, Injection, Kind, Scripted
from everstep.store.memory import MemoryStore

SIZE = 64
RUNS = st.sampled_from(["a", "b"])


def quiet(_event):
    """Hears nothing."""


class Histories(RuleBasedStateMachine):
    """``model`` says what each run must hold: its attempts in order, each from step to content."""

    @initialize()
    def begin(self):
        """An empty store and no launches."""
        self.store = MemoryStore()
        self.model = {}
        self.live = {}
        self.forks = 0

    def newest(self, run):
        """The step and content that a restore must give, or None."""
        for attempt in reversed(self.model.get(run, [])):
            if attempt:
                step = max(attempt)
                return step, attempt[step]
        return None

    @rule(run=RUNS)
    def launch(self, run):
        """A new launch restores the newest checkpoint."""
        self.open(run, self.store)

    def open(self, run, store):
        ckpt = es.Checkpointer(store, run, listener=quiet)
        state = {"x": np.zeros(SIZE, np.uint8), "note": ""}
        step = ckpt.restore(state)
        expected = self.newest(run)
        assert step == (expected[0] if expected else None)
        if expected:
            assert state["x"].tobytes() == expected[1]
            assert state["note"] == str(step)
        self.model.setdefault(run, []).append({})
        self.live[run] = (ckpt, state)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), ahead=st.integers(1, 5), seed=st.integers(0, 3))
    def save(self, data, ahead, seed):
        """A save of a later step; contents repeat, so that chunks are shared."""
        run = data.draw(st.sampled_from(sorted(self.live)))
        ckpt, state = self.live[run]
        step, content = self.next_state(run, state, ahead, seed)
        ckpt.save(step, state).wait()
        self.model[run][-1][step] = content

    def next_state(self, run, state, ahead, seed):
        step = max(self.model[run][-1], default=0) + ahead
        state["x"][:] = seed
        state["note"] = str(step)
        return step, state["x"].tobytes()

    @precondition(lambda self: any(self.newest(run) for run in self.live))
    @rule(data=st.data())
    def roll_back(self, data):
        """An older step is restored in the same process: what is saved from there on is the newest."""
        run = data.draw(st.sampled_from([run for run in sorted(self.live) if self.newest(run)]))
        there = {step: content for attempt in self.model[run] for step, content in attempt.items()}
        step = data.draw(st.sampled_from(sorted(there)))
        ckpt, state = self.live[run]
        assert ckpt.restore(state, step=step) == step
        assert state["x"].tobytes() == there[step]
        self.model[run].append({})

    @precondition(lambda self: any(self.newest(run) for run in self.model))
    @rule(data=st.data())
    def fork(self, data):
        """A fork begins with its parent's content and lives by itself."""
        run = data.draw(st.sampled_from([run for run in sorted(self.model) if self.newest(run)]))
        step, content = self.newest(run)
        self.forks += 1
        repository = open_repository(self.store, create=False)
        forked = fork(repository, find(repository, run, step), f"fork-{self.forks}")
        assert forked.stored_bytes == 0
        self.model[f"fork-{self.forks}"] = [{step: content}]

    @precondition(lambda self: self.live)
    @rule(data=st.data(), at=st.integers(1, 12), after=st.booleans(), seed=st.integers(0, 3))
    def crash_in_a_save(self, data, at, after, seed):
        """The process dies at some call of a launch and a save; the save is there whole, or not at all."""
        run = data.draw(st.sampled_from(sorted(self.live)))
        kind = Kind.CRASH_AFTER if after else Kind.CRASH_BEFORE
        del self.live[run]
        expected = self.newest(run)
        step = (expected[0] if expected else 0) + 1
        content = bytes([seed]) * SIZE
        died = False
        try:
            ckpt = es.Checkpointer(
                Fault(self.store, Scripted(Injection(kind=kind, at=at))), run, listener=quiet
            )
            ckpt.restore({"x": np.zeros(SIZE, np.uint8), "note": ""})
            ckpt.save(step, {"x": np.frombuffer(content, np.uint8).copy(), "note": str(step)}).wait()
        except Crashed:
            died = True
        es.Checkpointer(self.store, run, listener=quiet).restore({"x": np.zeros(SIZE, np.uint8), "note": ""})
        there = checkpoints(open_repository(self.store, create=False), run)
        known = {(step, content) for attempt in self.model[run] for step, content in attempt.items()}
        if len(there) > sum(len(attempt) for attempt in self.model[run]):
            assert there[0].step == step
            self.model[run].append({step: content})
        else:
            assert died or (step, content) in known

    @invariant()
    def every_checkpoint_is_what_was_saved(self):
        """The list is the model's, newest first, and each verifies."""
        for run, attempts in self.model.items():
            repository = open_repository(self.store, create=False)
            listed = checkpoints(repository, run)
            expected = [step for attempt in reversed(attempts) for step in sorted(attempt, reverse=True)]
            assert [checkpoint.step for checkpoint in listed] == expected
            for checkpoint in listed[:2]:
                assert verify(repository, checkpoint) == []


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.more
class TestManyHistories(Histories.TestCase):
    """The same, longer."""

    settings = settings(max_examples=1000, stateful_step_count=60, deadline=None)
