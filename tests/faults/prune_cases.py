"""What processes do to one store at the same time while others prune it: ``python -m tests.faults.prune_cases ROLE STORE SEED``.

Each role goes on until it is killed. A checkpoint that is given up under its hands is no fault; bytes that are not what
was saved, or a checkpoint that stands and cannot be read, end the role with code 99.
"""

import math
import random
import sys
import time
import traceback

import numpy as np

import everstep as es
from everstep.cli.entry import run as everstep
from everstep.errors import AlreadyExists, EverstepError, Fenced, IntegrityError, NotFound, TryAgain
from everstep.repository.catalogue import checkpoints, runs
from everstep.repository.fork import fork
from everstep.repository.opening import open_repository
from everstep.store.opening import open_store

__all__ = ["FAULT", "KEEP", "RUN", "right", "train"]

RUN = "main"
KEEP = "last 2, best 1 by val_loss"
FAULT = 99
GIVEN_UP = (NotFound, TryAgain, AlreadyExists)
"""What may be answered beside a prune: it is gone, or ask again."""


def state_at(step):
    """The state that a checkpoint of this step must hold; parts of it stay for a while, a part for ever."""
    return {
        "frozen": np.arange(30_000, dtype=np.float32),
        "slow": np.random.default_rng(step // 10).standard_normal(20_000),
        "hot": np.random.default_rng(step).standard_normal(20_000),
        "n": step,
    }


def blank():
    """The same leaves with other content."""
    return {name: np.zeros_like(leaf) for name, leaf in state_at(0).items() if name != "n"} | {"n": -1}


def same(state, step):
    """Whether a state is that of a step, bit for bit."""
    return state["n"] == step and all(
        np.array_equal(state[name], leaf) for name, leaf in state_at(step).items() if name != "n"
    )


def right(state, step, what):
    """As `same`; says what is wrong."""
    if not same(state, step):
        raise IntegrityError(f"{what} is not the state of step {step}")


def loss(step):
    """A metric that goes up and down."""
    return abs(math.sin(step)) + 1 / (1 + step)


def train(store, run, until, *, every="2 steps or auto", keep=KEEP):
    """One launch; every step's state follows from its number."""
    state = blank()
    with es.Checkpointer(
        store, run, every=every, keep=keep, on_corrupt="fail", listener=lambda _event: None
    ) as ckpt:
        for step in ckpt.loop(state, until=until):
            if step:
                right(state, step, "what came back")
            time.sleep(0.01)
            for name, leaf in state_at(step + 1).items():
                if name == "n":
                    state["n"] = leaf
                else:
                    state[name][:] = leaf
            ckpt.log(val_loss=loss(step + 1))


class Slow:
    """A store that takes its time before some creates: much may happen between a plan and its commit record."""

    def __init__(self, inner, dice):
        self._inner, self._dice = inner, dice

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def create(self, key, body):
        """As the inner store's, most times at once."""
        time.sleep(self._dice.random() * self._dice.choice([0, 0, 0, 0.3]))
        self._inner.create(key, body)


def trainer(store, _dice):
    """Trains the main run."""
    train(store, RUN, 1_000_000)


def forker(store, dice):
    """Forks a checkpoint of any run, trains the fork a little, and looks whether it is what it was."""
    while True:
        slow = Slow(open_store(store), dice)
        repository = open_repository(slow, create=False)
        try:
            chosen = dice.choice(checkpoints(repository, dice.choice([one.run for one in runs(repository)])))
            made = fork(repository, chosen, f"fork-{dice.getrandbits(40):x}")
            train(
                store, made.run, made.step + dice.randint(1, 9), every=3, keep=dice.choice(["last 1", KEEP])
            )
        except (*GIVEN_UP, IndexError):
            continue


def reader(store, dice):
    """Loads any checkpoint of any run."""
    while True:
        repository = open_repository(open_store(store), create=False)
        try:
            chosen = dice.choice(checkpoints(repository, dice.choice([one.run for one in runs(repository)])))
            right(es.load(store, chosen.run, step=chosen.step), chosen.step, f"{chosen}")
        except (*GIVEN_UP, IndexError):
            continue


def pruner(store, dice):
    """Prunes the whole store, the main run or none of it, again and again; now and then it also packs anew."""
    while True:
        words = dice.choice(
            [["prune"], ["prune", RUN], ["prune", RUN, "--keep", dice.choice(["last 1", KEEP])]]
        )
        words = [*words, "--grace", dice.choice(["0s", "0s", "1s"]), "--yes", "--check", "light"]
        command([*words, *(["--repack"] if dice.random() < 0.3 else [])], store)


def tidier(store, dice):
    """Prunes the whole store by its runs' own policies, again and again."""
    while True:
        command(["prune", "--grace", "0s", "--yes", "--check", dice.choice(["light", "full"])], store)
        time.sleep(dice.random() / 2)


def asker(store, dice):
    """Asks for saves and tags them, takes tags away, brings back what was pruned, tags what is there."""
    while True:
        name = f"t{dice.randint(1, 5)}"
        repository = open_repository(open_store(store), create=False)
        found = checkpoints(repository, RUN)
        step = dice.choice(found).step if found else 0
        command(
            dice.choice(
                [
                    ["save", RUN, "--timeout", "3s"],
                    ["save", RUN, "--timeout", "3s", "--tag", name],
                    ["tag", name, "--delete"],
                    ["tag", name, f"{RUN}@{step}", "--force"],
                    ["undelete", f"{RUN}@{max(1, step - dice.randint(1, 5))}"],
                    ["du", "--deep"],
                ]
            ),
            store,
        )


def command(words, store):
    """An ``everstep`` command, whose answer must be one that people can live with."""
    code = everstep([*words, "--store", store])
    if code not in {0, 1, 3, 5}:
        raise IntegrityError(f"everstep {' '.join(words)} answered {code}")


def main():
    """The role, the store, the seed."""
    role, store, seed = sys.argv[1:]
    roles = {one.__name__: one for one in (trainer, forker, reader, pruner, tidier, asker)}
    try:
        roles[role](store, random.Random(seed))
    except Fenced:
        traceback.print_exc()
        sys.exit(0)
    except (EverstepError, AssertionError):
        traceback.print_exc()
        sys.exit(FAULT)


if __name__ == "__main__":
    main()
