"""A small training as a sequence of store calls, for stopping it at each of them."""

from __future__ import annotations

import numpy as np

import everstep as es
from everstep.store.fault import Crashed
from everstep.store.memory import MemoryStore
from everstep.store.protocol import Store

STEPS = (1, 2, 3)


def state_at(step: int) -> dict[str, object]:
    """The state that a checkpoint of this step must hold: part of it changes, part is frozen."""
    return {
        "frozen": np.arange(5000, dtype=np.float32),
        "trained": np.full(3000, step, dtype=np.float64),
        "step": step,
    }


def blank() -> dict[str, object]:
    """The same leaves with other content."""
    return {"frozen": np.zeros(5000, np.float32), "trained": np.zeros(3000), "step": -1}


def same(state: dict[str, object], step: int) -> bool:
    """Whether a state is bit for bit that of a step."""
    wanted = state_at(step)
    return (
        np.array_equal(state["frozen"], wanted["frozen"])
        and np.array_equal(state["trained"], wanted["trained"])
        and state["step"] == step
    )


def train(store: Store, acknowledged: list[int], steps: tuple[int, ...] = STEPS) -> None:
    """One launch: restore, then save each step and wait; steps that were acknowledged are noted."""
    with es.Checkpointer(store, "run", listener=lambda _event: None) as ckpt:
        ckpt.restore(blank())
        for step in steps:
            ckpt.save(step, state_at(step)).wait()
            acknowledged.append(step)


def crashing(store: Store, acknowledged: list[int], steps: tuple[int, ...] = STEPS) -> BaseException | None:
    """The same, until the store dies; gives the crash or error that ended it."""
    try:
        train(store, acknowledged, steps)
    except (Crashed, es.EverstepError) as error:
        return error
    return None


def recovered(inner: MemoryStore) -> int:
    """A new launch on what is left: it must restore a whole step and be able to save another. Gives the step."""
    state = blank()
    with es.Checkpointer(inner, "run", listener=lambda _event: None) as ckpt:
        step = ckpt.restore(state) or 0
        assert step == 0 or same(state, step)
        for checkpoint in ckpt.checkpoints():
            again = blank()
            ckpt.restore(again, step=checkpoint.step)
            assert same(again, checkpoint.step)
        ckpt.save(99, state_at(99)).wait()
    final = blank()
    with es.Checkpointer(inner, "run", listener=lambda _event: None) as ckpt:
        assert ckpt.restore(final) == 99
    assert same(final, 99)
    return step
