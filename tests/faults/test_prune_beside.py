"""Prunes beside trainings, forks, restores, tags and other prunes, all killed again and again: what stands is whole."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import everstep as es
from everstep.repository.catalogue import checkpoints, decided, newest, runs
from everstep.repository.checkpoint import checkpoint_of
from everstep.repository.decisions import read_decision
from everstep.repository.fork import fork
from everstep.repository.opening import open_repository
from everstep.repository.verify import verify
from everstep.store.local import LocalStore
from tests.cli.worlds import ask
from tests.faults.prune_cases import FAULT, RUN, right, train
from tests.zygote import rendezvous

ROOT = Path(__file__).parents[2]
ONE = 450_000
"""Bytes of one checkpoint."""


class Cast:
    """Processes that play their roles on one store."""

    def __init__(self, folder, seed):
        self.folder, self.store, self.seed = folder, str(folder / "store"), seed
        self.playing = {}
        self.paused = {}
        self.launches = 0

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        for role in list(self.playing):
            self.kill(role)

    def start(self, role):
        """A new process in this role."""
        self.launches += 1
        with (self.folder / f"{role.strip('0123456789')}.log").open("ab") as log:
            self.playing[role] = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.faults.prune_cases",
                    role.strip("0123456789"),
                    self.store,
                    f"{self.seed}-{self.launches}",
                ],
                cwd=ROOT,
                stdout=log,
                stderr=log,
                env={**os.environ, "EVERSTEP_WATCH": "0.3s"},
            )

    def kill(self, role):
        """-9, wherever it is; a fault that it had found is told."""
        process = self.playing.pop(role)
        self.paused.pop(role, None)
        process.send_signal(signal.SIGKILL)
        assert process.wait() != FAULT, (self.folder / f"{role.strip('0123456789')}.log").read_text()[-4000:]

    def pause(self, role, seconds):
        """It stands still for a while, wherever it is, and goes on as if nothing had been."""
        self.playing[role].send_signal(signal.SIGSTOP)
        self.paused[role] = time.monotonic() + seconds

    def look(self):
        """Roles that have ended by themselves: with a fault, or to be started again."""
        for role, until in list(self.paused.items()):
            if time.monotonic() > until:
                del self.paused[role]
                self.playing[role].send_signal(signal.SIGCONT)
        for role, process in list(self.playing.items()):
            if process.poll() is not None:
                self.kill(role)
                self.start(role)


def whole(store):
    """Every checkpoint that stands, of every run, is bit for bit what was saved. Gives the steps by run."""
    repository = open_repository(LocalStore(Path(store)), create=False)
    found = {}
    for record in runs(repository):
        found[record.run] = []
        for one in checkpoints(repository, record.run):
            assert verify(repository, one) == [], one
            right(es.load(store, record.run, step=one.step), one.step, one)
            found[record.run].append(one.step)
    return found


def play(tmp_path, capsys, *, seed, seconds, roles):
    """All roles at once, each killed or paused now and then; then what is left."""
    dice = random.Random(seed)
    train(str(tmp_path / "store"), RUN, 4)
    repository = open_repository(LocalStore(tmp_path / "store"), create=False)
    fork(repository, newest(repository, RUN), "first-fork")
    with Cast(tmp_path, seed) as cast:
        for role in roles:
            cast.start(role)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(dice.random() * 0.6)
            cast.look()
            role = dice.choice(roles)
            if role not in cast.paused and dice.random() < 0.4:
                cast.pause(role, dice.random() * 3)
            else:
                cast.kill(role)
                cast.start(role)
    store = cast.store
    before = whole(store)
    assert before[RUN]
    reached = before[RUN][0]
    train(store, RUN, reached + 3)
    settled = ask(capsys, "prune", "--grace", "0s", "--yes", "--check", "full", "--store", store)
    assert settled.code == 0, settled.err
    after = whole(store)
    assert after[RUN][0] == reached + 3
    return ask(capsys, "du", "--json", "--store", store).json


ROLES = ["trainer", "trainer2", "forker", "reader", "asker", "pruner", "pruner2"]


@pytest.mark.parametrize(
    ("seed", "seconds"), [(1, 6), *(pytest.param(seed, 60, marks=pytest.mark.more) for seed in range(2, 6))]
)
def test_everybody_at_once(tmp_path, capsys, seed, seconds):
    """Two launches of a training, forks, restores, requests and tags, and two prunes, each killed or paused at any time.

    Whatever stands is whole; the training goes on; after one more prune nothing is left that nobody needs.
    """
    space = play(tmp_path, capsys, seed=seed, seconds=seconds, roles=ROLES)
    assert space["missing"] == space["damage"] == []
    assert space["total"]["garbage_bytes"] == space["total"]["orphan_bytes"] == 0


def packed(store):
    """Bytes of packs."""
    total = 0
    for folder, _, names in os.walk(Path(store) / "packs"):  # passes over folders that are pruned meanwhile
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += (Path(folder) / name).stat().st_size
    return total


def test_a_training_that_is_killed_again_and_again_keeps_what_its_policy_says(tmp_path):
    """Beside it the whole store is pruned all the time: space stays bounded, and the best and the newest are there."""
    dice = random.Random(7)
    saves, most = 0, 0
    with Cast(tmp_path, 7) as cast:
        for launch in range(3):
            cast.start("trainer")
            end = time.monotonic() + 20
            while not (tmp_path / "store" / "runs" / RUN / "attempts" / f"{launch + 1:08}.json").exists():
                assert time.monotonic() < end
                time.sleep(0.01)
            if launch == 0:
                cast.start("tidier")
            until = time.monotonic() + 1 + dice.random()
            while time.monotonic() < until:
                most = max(most, packed(cast.store))
                time.sleep(0.05)
            cast.kill("trainer")
        repository = open_repository(LocalStore(tmp_path / "store"), create=False)
        reached = newest(repository, RUN).step
        train(cast.store, RUN, reached + 4)
    whole(cast.store)
    losses = {}
    for save in decided(repository, RUN):
        record = read_decision(repository, RUN, save)
        if record.state == "committed":
            saves += 1
            losses[save] = checkpoint_of(record, RUN, save).metrics["val_loss"]
    standing = [one.save for one in checkpoints(repository, RUN)]
    assert standing[0].step == reached + 4
    assert min(losses.values()) == min(losses[save] for save in standing)
    assert saves > 20
    assert len(standing) <= 5, (
        "the last two, the best, the newest verified, and what was not pruned before the end"
    )
    assert most < 10 * ONE


@pytest.mark.parametrize(
    "deaths", [[(0, 7)], pytest.param([(2, 5), (0, 9), (1, 14), (0, 17)], marks=pytest.mark.more)], ids=len
)
def test_many_ranks_keep_what_their_policy_says(zygote, tmp_path, deaths):
    """One of three ranks is killed, beside a prune of the store: the next launch goes on from a whole step."""
    store = tmp_path / "store"
    with Cast(tmp_path, 3) as cast:
        for victim, when in [*deaths, (None, 0)]:
            words = (rendezvous(), str(store), 20, victim, when)
            ended = zygote.run("tests.faults.rank_cases:kept", *words, world=3, EVERSTEP_PATIENCE="3")
            if not cast.playing:
                cast.start("tidier")
            codes = [one.code for one in ended]
            assert codes[victim or 0] == (0 if victim is None else -signal.SIGKILL), [
                one.printed for one in ended
            ]
            assert "what came back" not in "".join(one.printed for one in ended)
    assert codes == [0, 0, 0]
    repository = open_repository(LocalStore(store), create=False)
    found = checkpoints(repository, RUN)
    assert [verify(repository, one) for one in found] == [[]] * len(found)
    steps = [one.step for one in found]
    assert steps[:2] == [20, 18]
    assert {4, 6} & set(steps)
    assert len(steps) <= 5


@pytest.mark.more
def test_a_drill_of_the_digits_with_a_policy_and_auto(tmp_path, monkeypatch, capsys):
    """Stopped and killed often, its three stores pruned all the time: equal to the bit, in the space that the policy says."""
    monkeypatch.setenv("EVERSTEP_KEEP", "last 2, best 1 by loss")
    script = [
        sys.executable,
        str(ROOT / "examples/digits/train.py"),
        "--steps",
        "160",
        "--every",
        "10 steps or auto",
    ]
    with contextlib.ExitStack() as casts:
        for name in ("undisturbed", "sigterm", "kill"):
            (tmp_path / name).mkdir()
            cast = casts.enter_context(Cast(tmp_path / name, 5))
            cast.store = str(tmp_path / "stores" / name)
            cast.start("tidier")
        words = ("drill", "--kills", "6", "--seed", "11", "--store", tmp_path / "stores", "--json")
        answer = ask(capsys, *words, "--", *script)
    assert answer.code == 0, answer.err
    for one in answer.json["scenarios"]:
        assert one["equal"]
        assert 2 <= one["checkpoints"] <= 5
        assert one["stored_bytes"] < 8 * ONE
