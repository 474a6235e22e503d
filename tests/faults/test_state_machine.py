"""Random histories of launches, saves, rollbacks, forks, tags, copies, prunes and crashes, held against dictionaries."""

import contextlib
import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import everstep as es
from everstep.errors import Fenced
from everstep.format.ids import parse_save
from everstep.repository.catalogue import checkpoints, find, resolve, runs
from everstep.repository.copying import copy
from everstep.repository.fork import fork
from everstep.repository.opening import open_repository
from everstep.repository.reading import read_manifest
from everstep.repository.settle import undecided
from everstep.repository.tags import remove_tag, set_tag, tags
from everstep.repository.undelete import undelete
from everstep.repository.verified import mark_verified, verified
from everstep.repository.verify import verify
from everstep.retention.policy import parse_keep
from everstep.retention.prune import plan_prune, prune
from everstep.retention.sweep import sweep
from everstep.store.fault import Crashed, Fault, Injection, Kind, Scripted
from everstep.store.memory import MemoryStore
from everstep.store.retry import Retry

SIZE = 64
RUNS = st.sampled_from(["a", "b"])
PASSING = [Kind.BEFORE, Kind.AFTER, Kind.REPEATED, Kind.LATE, Kind.SHORT, Kind.THROTTLED, Kind.CONFLICT]


def quiet(_event):
    """Hears nothing."""


def state_of(step, content):
    """The state that is saved at a step."""
    return {"x": np.frombuffer(content, np.uint8).copy(), "note": str(step)}


def blank():
    """The same leaves, empty."""
    return state_of("", bytes(SIZE))


def same(state, step, content):
    """Whether a state is that of a step with this content."""
    return (state["x"].tobytes(), state["note"]) == (content, str(step))


class Histories(RuleBasedStateMachine):
    """``model`` says what each run must hold: its attempts in order, each from step to content.

    ``copies`` says what the second store must hold: for each run, content by save. ``tagged`` is the
    checkpoint that each tag names. ``zombies`` are launches that a newer one has replaced. ``buried`` has for each run
    the pruned checkpoints that no sweep has taken: place of the attempt, step and content, by save.
    """

    @initialize()
    def begin(self):
        """Two stores, the second one empty; a run that was launched and has saved twice."""
        self.store, self.other = MemoryStore(), MemoryStore()
        self.there = open_repository(self.store, create=True)
        self.elsewhere = open_repository(self.other, create=True)
        self.model, self.copies, self.tagged = {}, {}, {}
        self.live, self.zombies, self.buried = {}, [], {}
        self.forks = 0
        self.open("a")
        for seed in (1, 2):
            self.save_next("a", ahead=2, seed=seed)

    def ordered(self, run):
        """Steps and contents, newest first: the highest attempt, then the highest step."""
        return [
            (step, attempt[step])
            for attempt in reversed(self.model.get(run, []))
            for step in sorted(attempt, reverse=True)
        ]

    def places(self, run):
        """The attempts, by their place in the model, and the steps, in the same order."""
        attempts = self.model.get(run, [])
        return [
            (at, step) for at in reversed(range(len(attempts))) for step in sorted(attempts[at], reverse=True)
        ]

    def newest(self, run):
        """The step and content that a restore must give, or None."""
        return next(iter(self.ordered(run)), None)

    def by_step(self, run):
        """The content that a step stands for: that of the newest attempt which has it."""
        return dict(reversed(self.ordered(run)))

    def some_run(self, data):
        """A run that has checkpoints."""
        return data.draw(st.sampled_from([run for run in sorted(self.model) if self.newest(run)]))

    def has_checkpoints(self):
        """Whether any run has."""
        return any(self.newest(run) for run in self.model)

    @rule(run=RUNS)
    def launch(self, run):
        """A new launch restores the newest checkpoint; the one before is a zombie now."""
        self.open(run)

    @precondition(lambda self: self.forks)
    @rule(data=st.data())
    def launch_a_fork(self, data):
        """A fork is a run as any other."""
        self.open(f"fork-{data.draw(st.integers(1, self.forks))}")

    def open(self, run):
        ckpt, state = es.Checkpointer(self.store, run, listener=quiet), blank()
        step, expected = ckpt.restore(state), self.newest(run)
        assert step == (expected[0] if expected else None)
        if expected:
            assert same(state, *expected)
        if run in self.live:
            self.zombies.append(self.live[run][0])
        self.model.setdefault(run, []).append({})
        self.live[run] = (ckpt, state)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), ahead=st.integers(1, 5), seed=st.integers(0, 3))
    def save(self, data, ahead, seed):
        """A save of a later step; contents repeat, so that chunks are shared."""
        self.save_next(data.draw(st.sampled_from(sorted(self.live))), ahead, seed)

    def save_next(self, run, ahead, seed):
        ckpt, state = self.live[run]
        step = max(self.model[run][-1], default=0) + ahead
        state["x"][:] = seed
        state["note"] = str(step)
        ckpt.save(step, state).wait()
        self.model[run][-1][step] = state["x"].tobytes()

    @precondition(lambda self: self.zombies)
    @rule(data=st.data())
    def wake_a_zombie(self, data):
        """A launch that was replaced cannot commit."""
        ckpt = data.draw(st.sampled_from(self.zombies))
        with pytest.raises(Fenced):
            ckpt.save(10_000, state_of(10_000, bytes(SIZE))).wait()

    @precondition(lambda self: any(self.newest(run) for run in self.live))
    @rule(data=st.data(), goes_on=st.booleans(), seed=st.integers(0, 3))
    def roll_back(self, data, goes_on, seed):
        """An older step is restored in the same process: what is saved from there on is the newest (fault 16)."""
        run = data.draw(st.sampled_from([run for run in sorted(self.live) if self.newest(run)]))
        there = self.by_step(run)
        step = data.draw(st.sampled_from(sorted(there)))
        ckpt, state = self.live[run]
        assert ckpt.restore(state, step=step) == step
        assert same(state, step, there[step])
        self.model[run].append({})
        if goes_on:
            self.save_next(run, 1, seed)

    @precondition(has_checkpoints)
    @rule(data=st.data())
    def look(self, data):
        """Any step of any run loads with what was saved at it."""
        run = self.some_run(data)
        step, content = data.draw(st.sampled_from(sorted(self.by_step(run).items())))
        assert same(es.load(self.store, run, step=step), step, content)

    @precondition(lambda self: self.has_checkpoints() and self.forks < 3)
    @rule(data=st.data())
    def fork(self, data):
        """A fork begins with the content of any step of its parent and lives by itself."""
        run = self.some_run(data)
        step, content = data.draw(st.sampled_from(sorted(self.by_step(run).items())))
        self.forks += 1
        assert fork(self.there, find(self.there, run, step), f"fork-{self.forks}").stored_bytes == 0
        self.model[f"fork-{self.forks}"] = [{step: content}]

    @precondition(has_checkpoints)
    @rule(data=st.data(), name=st.sampled_from(["best", "last"]))
    def tag(self, data, name):
        """A tag is set, or moved to another checkpoint."""
        run = self.some_run(data)
        step, content = data.draw(st.sampled_from(sorted(self.by_step(run).items())))
        set_tag(self.there, name, find(self.there, run, step), force=True)
        self.tagged[name] = (run, step, content)

    @precondition(lambda self: self.tagged)
    @rule(data=st.data())
    def untag(self, data):
        """A tag is taken away."""
        name = data.draw(st.sampled_from(sorted(self.tagged)))
        remove_tag(self.there, name)
        del self.tagged[name]

    @precondition(has_checkpoints)
    @rule(data=st.data(), whole=st.booleans(), at=st.integers(1, 40), cut=st.booleans())
    def copy(self, data, whole, at, cut):
        """A run or one of its checkpoints goes to the second store, perhaps in two goes."""
        run = self.some_run(data)
        listed = checkpoints(self.there, run)
        contents = dict(zip([str(one.save) for one in listed], self.ordered(run), strict=True))
        chosen = listed if whole else [data.draw(st.sampled_from(listed))]
        if cut:
            dying = Fault(self.other, Scripted(Injection(kind=Kind.CRASH_BEFORE, at=at)))
            with contextlib.suppress(Crashed):
                copy(self.there, chosen, open_repository(dying, create=False))
        copy(self.there, chosen, self.elsewhere)
        self.copies.setdefault(run, {}).update({str(one.save): contents[str(one.save)] for one in chosen})

    @precondition(has_checkpoints)
    @rule(data=st.data(), last=st.integers(1, 3), graceful=st.booleans(), at=st.integers(0, 40))
    def prune(self, data, last, graceful, at):
        """A run keeps its last few, what is tagged and what was verified; perhaps it dies on the way, and goes on."""
        run = self.some_run(data)
        listed = checkpoints(self.there, run)
        marks = verified(self.there, run)
        newest_marked = next((one.save for one in listed if one.save in marks), None)
        kept = {one.save for n, one in enumerate(listed) if n < last or one.tags or one.save == newest_marked}
        dying = Fault(self.store, Scripted(Injection(kind=Kind.CRASH_BEFORE, at=at + 1)))
        grace_s = 1e6 if graceful else 0.0
        for store in (dying, self.store) if at else (self.store,):
            repository = open_repository(self.store, create=False)
            repository = dataclasses.replace(repository, store=store)
            with contextlib.suppress(Crashed):
                plan = plan_prune(repository, run, parse_keep(f"last {last}"), now=0.0)
                prune(repository, plan, grace_s=grace_s)
        for one, (attempt, step) in zip(listed, self.places(run), strict=True):
            if one.save not in kept:
                content = self.model[run][attempt].pop(step)
                self.buried.setdefault(run, {})[str(one.save)] = (attempt, step, content)
        if not graceful:
            self.buried.pop(run, None)

    @precondition(lambda self: any(self.buried.values()))
    @rule(data=st.data())
    def undelete(self, data):
        """What was pruned and not swept comes back with its content."""
        run = data.draw(st.sampled_from(sorted(run for run, gone in self.buried.items() if gone)))
        name = data.draw(st.sampled_from(sorted(self.buried[run])))
        attempt, step, content = self.buried[run].pop(name)
        assert undelete(self.there, run, parse_save(name)).step == step
        self.model[run][attempt][step] = content

    @rule()
    def sweep_everything(self):
        """Both stores are swept; then nothing is there that no checkpoint needs."""
        for repository in (self.there, self.elsewhere):
            sweep(repository, None, grace_s=0)
            names = [record.run for record in runs(repository)]
            needed = {
                key
                for name in names
                for one in checkpoints(repository, name)
                for key in read_manifest(repository, one).packs
            }
            if not any(undecided(repository, name) for name in names):
                assert {listed.key for listed in repository.store.list("packs/")} == needed
        self.buried = {}

    @precondition(has_checkpoints)
    @rule(data=st.data())
    def verify_one(self, data):
        """Somebody reads a whole checkpoint: from now on it is verified."""
        one = data.draw(st.sampled_from(checkpoints(self.there, self.some_run(data))))
        assert verify(self.there, one) == []
        assert mark_verified(self.there, one.run, one.save, by="verify")

    @precondition(lambda self: self.live)
    @rule(data=st.data(), at=st.integers(1, 30), kind=st.sampled_from(PASSING), seed=st.integers(0, 3))
    def save_in_trouble(self, data, at, kind, seed):
        """A launch and a save with a passing fault at some call: with retries it goes well."""
        run = data.draw(st.sampled_from(sorted(self.live)))
        expected = self.newest(run)
        step, content = (expected[0] if expected else 0) + 1, bytes([seed]) * SIZE
        self.zombies.append(self.live.pop(run)[0])
        faulty = Fault(self.store, Scripted(Injection(kind=kind, at=at)))
        ckpt = es.Checkpointer(Retry(faulty, sleep=lambda _s: None), run, listener=quiet)
        state = blank()
        assert ckpt.restore(state) == (expected[0] if expected else None)
        assert expected is None or same(state, *expected)
        ckpt.save(step, state_of(step, content)).wait()
        faulty.land()
        self.model[run].append({step: content})

    @precondition(lambda self: self.live)
    @rule(data=st.data(), at=st.integers(1, 30), after=st.booleans(), seed=st.integers(0, 3))
    def crash_in_a_save(self, data, at, after, seed):
        """The process dies at some call of a launch and a save; the save is there whole, or not at all."""
        run = data.draw(st.sampled_from(sorted(self.live)))
        kind = Kind.CRASH_AFTER if after else Kind.CRASH_BEFORE
        self.zombies.append(self.live.pop(run)[0])
        expected = self.newest(run)
        step, content = (expected[0] if expected else 0) + 1, bytes([seed]) * SIZE
        died = False
        try:
            ckpt = es.Checkpointer(
                Fault(self.store, Scripted(Injection(kind=kind, at=at))), run, listener=quiet
            )
            ckpt.restore(blank())
            ckpt.save(step, state_of(step, content)).wait()
        except Crashed:
            died = True
        state = blank()
        restored = es.Checkpointer(self.store, run, listener=quiet).restore(state)
        if restored == step:
            assert same(state, step, content)
            self.model[run].append({step: content})
        else:
            assert died, "an acknowledged save is gone"
            assert restored == (expected[0] if expected else None)
            assert expected is None or same(state, *expected)

    @invariant()
    def every_checkpoint_is_what_was_saved(self):
        """The list is the model's, newest first, and each verifies."""
        for run in self.model:
            listed = checkpoints(self.there, run)
            assert [one.step for one in listed] == [step for step, _ in self.ordered(run)]
            for checkpoint in listed[:2]:
                assert verify(self.there, checkpoint) == []

    @invariant()
    def every_tag_names_its_checkpoint(self):
        """The tags are those of the model, and name the same run, step and content."""
        assert [one.tag for one in tags(self.there)] == sorted(self.tagged)
        for name, (run, step, _content) in self.tagged.items():
            found = resolve(self.there, f"tag:{name}")
            assert (found.run, found.step) == (run, step)
            assert name in found.tags

    @invariant()
    def every_copy_is_what_was_copied(self):
        """The second store holds the copied saves and no others, the newest with its content."""
        for run, copies in self.copies.items():
            listed = checkpoints(self.elsewhere, run)
            assert {str(one.save) for one in listed} == set(copies)
            assert same(es.load(self.other, run), *copies[str(listed[0].save)])


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=40,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestHistories.pytestmark = [pytest.mark.timeout(900)]  # a failing history is made short, which takes a while


@pytest.mark.more
class TestManyHistories(Histories.TestCase):
    """The same, longer."""

    settings = settings(max_examples=300, stateful_step_count=60, deadline=None)
