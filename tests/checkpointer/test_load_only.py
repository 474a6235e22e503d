"""A part of a checkpoint, loaded for what that part costs."""

import numpy as np
import pytest

import everstep as es
from everstep.errors import UsageError
from everstep.store.count import Count
from everstep.store.memory import MemoryStore


def saved():
    """A store that counts, with a model in it that is a twentieth of the state."""
    store = Count(MemoryStore())
    rng = np.random.default_rng(0)
    state = {
        "model": {f"w{n}": rng.random(16_384) for n in range(5)},
        "optimizer": {f"m{n}": rng.random(16_384 * 5) for n in range(19)},
        "step": 5,
    }
    with es.Checkpointer(store, "r") as ckpt:
        ckpt.save(5, state).wait()
    return store, state


def test_only_the_model_is_read():
    """``only=["model/*"]`` gives the model alone, and fetches its bytes and the small objects before them."""
    store, state = saved()
    store.clear()
    es.load(store, "r", only=["step"])
    small = store.bytes_out
    assert store.calls["get_range"] == 0
    store.clear()
    loaded = es.load(store, "r", only=["model/*"])
    assert list(loaded) == ["model"]
    for name, array in state["model"].items():
        assert np.array_equal(np.asarray(loaded["model"][name]), array)
    assert store.bytes_out - small <= 1.05 * 5 * 131_072


def test_nothing_of_that_name():
    """A pattern that names nothing is an error with paths like it, not an empty state."""
    store, _ = saved()
    with pytest.raises(UsageError, match="models") as raised:
        es.load(store, "r", only=["models"])
    assert "model" in raised.value.fields["near"]
