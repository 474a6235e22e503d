"""jax arrays on one device."""

import dataclasses
from typing import NamedTuple

import jax
import msgspec
import numpy as np
import pytest

from everstep.errors import RestoreError, RestoreMismatch, UnsupportedLeaf
from everstep.state import assemble, flatten
from tests.state.moving import loaded, restored

jnp = jax.numpy
TYPES = [
    "bool",
    "int8",
    "uint16",
    "int32",
    "float16",
    "bfloat16",
    "float32",
    "complex64",
    "float8_e4m3fn",
    "float8_e5m2",
    "int4",
]


def same(one, other):
    """Bit-equal arrays of jax."""
    return (
        isinstance(one, jax.Array)
        and one.dtype == other.dtype
        and np.asarray(one).tobytes() == np.asarray(other).tobytes()
    )


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_arrays_come_back_bit_for_bit(name, shape):
    """As jax arrays of the same type, anew and in the place of live ones."""
    array = jnp.arange(int(np.prod(shape))).reshape(shape).astype(name)
    assert same(loaded({"a": array})["a"], array)
    live = {"a": jnp.zeros(shape, name)}
    restored({"a": array}, live)
    assert same(live["a"], array)


def test_typed_and_raw_keys_go_on():
    """A key of either kind draws what it would have drawn."""

    def make(seed):
        return {
            "typed": jax.random.key(seed),
            "raw": jax.random.PRNGKey(seed),
            "rbg": jax.random.key(seed, impl="rbg"),
            "many": jax.random.split(jax.random.key(seed), 2),
        }

    def draw(key):
        return (
            jax.random.normal(key, (3,)).tolist()
            if key.size in (1, 2) and key.ndim == (key.dtype == "uint32")
            else jax.random.normal(key[1], (3,)).tolist()
        )

    state, live = make(3), make(0)
    restored(state, live)
    made = loaded(state)
    for name in state:
        assert draw(live[name]) == draw(state[name]) == draw(made[name]), name
    with pytest.raises(RestoreMismatch, match="key_impl"):
        restored({"k": jax.random.key(1)}, {"k": jnp.zeros(2, "uint32")})


class AdamState(NamedTuple):
    """As optax has it."""

    count: jax.Array
    mu: dict
    nu: dict


@dataclasses.dataclass(frozen=True)
class TrainState:
    """As flax has it."""

    step: int
    params: dict
    opt_state: tuple
    apply_fn: object = dataclasses.field(default=print, metadata={"pytree_node": False})


def make_state(seed):
    """A state with the moments of an optimizer."""
    params = {"w": jax.random.normal(jax.random.key(seed), (2, 3)), "b": jnp.zeros(3)}
    moments = {"w": params["w"] ** 2, "b": params["b"]}
    return TrainState(seed, params, (AdamState(jnp.int32(seed), params, moments), ()))


def test_a_train_state_is_replaced_by_a_changed_copy():
    """Frozen dataclasses and named tuples hold arrays that do not change; one array under two names is stored once."""
    source, live = make_state(5), {"train": make_state(0)}
    restored({"train": source}, live)
    assert live["train"].step == 5
    assert live["train"].apply_fn is print
    assert type(live["train"].opt_state[0]) is AdamState
    assert all(map(same, jax.tree.leaves(live["train"].params), jax.tree.leaves(source.params)))
    assert all(map(same, jax.tree.leaves(live["train"].opt_state), jax.tree.leaves(source.opt_state)))
    assert len(flatten({"train": source}).pieces) == 4


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype")
def test_a_narrowed_type_is_an_error():
    """Jax without 64 bits makes float32 of float64: said, not done."""
    root, array = flatten({"a": np.zeros(2)}).entries
    made = assemble([root, msgspec.structs.replace(array, framework="jax")])
    made.wanted[0].target.view()[:] = bytes(16)
    with pytest.raises(RestoreError, match="jax makes it float32"):
        made.finish()


def test_deleted_arrays_and_tracers_are_refused():
    """Their values are gone, or not there yet."""
    array = jnp.ones(3)
    array.delete()
    with pytest.raises(UnsupportedLeaf, match="donated"):
        flatten({"a": array})

    def traced(x):
        with pytest.raises(UnsupportedLeaf, match="Tracer"):
            flatten({"a": x})
        return x

    jax.jit(traced)(jnp.ones(2))
