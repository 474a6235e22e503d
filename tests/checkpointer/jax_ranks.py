"""What the tests of whole checkpoints with jax run in processes of their own: see `tests.jax_world`."""

import jax
import numpy as np

import everstep as es
from tests.state.jax_ranks import make_state


def save(folder):
    """One checkpoint of all processes."""
    with es.Checkpointer(folder, run="j") as ckpt:
        state = make_state(seed=1)
        assert ckpt.restore(state) is None
        ckpt.save(5, state)


def resume(folder, turned):
    """The newest checkpoint, in arrays that lie otherwise."""
    live, expected = make_state(seed=2, turned=turned), make_state(seed=1, turned=turned)
    with es.Checkpointer(folder, run="j") as ckpt:
        step = ckpt.restore(live)
    for name, array in live.items():
        pairs = (array, expected[name])
        if name == "keys":
            pairs = tuple(map(jax.random.key_data, pairs))
        for one, other in zip(*(each.addressable_shards for each in pairs), strict=True):
            assert (one.index, one.device) == (other.index, other.device)
            assert np.asarray(one.data).tobytes() == np.asarray(other.data).tobytes(), name
    return step
