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


def save_plain(folder):
    """A checkpoint that other frameworks can take: numbers from 0 on, in rows, in columns, and whole."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    numbers = np.arange(24, dtype=np.float32).reshape(6, 4)

    def spread(array, *axes):
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    with es.Checkpointer(folder, run="jax") as ckpt:
        state = {
            "rows": spread(np.pad(numbers, ((0, 2), (0, 0))), "x"),
            "columns": spread(numbers.astype(jax.numpy.bfloat16), None, "x"),
            "all": spread(numbers),
        }
        ckpt.save(1, state).wait()
