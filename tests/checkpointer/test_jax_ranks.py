"""Checkpoints of jax programs on several processes."""

import jax
import numpy as np

import everstep as es
from tests.jax_world import in_ranks
from tests.state.jax_ranks import SHAPES, numbers

HERE = "tests.checkpointer.jax_ranks"


def test_saved_by_two_processes_and_restored_by_two_by_one_and_here(tmp_path):
    """Over jax's own coordination service, in another sharding, by a process with all devices, and by none of jax's."""
    store = str(tmp_path / "store")
    in_ranks(f"{HERE}:save", store, ranks=2, devices=2, folder=tmp_path)
    assert in_ranks(f"{HERE}:resume", store, True, ranks=2, devices=2, folder=tmp_path) == [5, 5]
    assert in_ranks(f"{HERE}:resume", store, True, ranks=1, devices=4, folder=tmp_path) == [5]
    found = es.load(store, "j")
    for name, (shape, dtype) in SHAPES.items():
        assert isinstance(found[name], jax.Array)
        assert np.asarray(found[name]).tobytes() == numbers(shape, dtype, 1).tobytes(), name
