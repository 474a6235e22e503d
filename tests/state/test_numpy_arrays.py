"""NumPy arrays of every element type and layout."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from everstep.errors import RestoreError, RestoreMismatch
from everstep.format.entries import Container, Tensor
from everstep.state import assemble, flatten, match
from tests.state.moving import loaded, restored, saved

dtypes = (
    hnp.scalar_dtypes()
    | st.sampled_from([np.dtype(name) for name in ("longdouble", "clongdouble", ">f8", ">c8", ">u2", ">M8[ns]", "S0", "S5", "<U3", ">U3", "V7")])
    | hnp.array_dtypes(hnp.integer_dtypes() | hnp.floating_dtypes(), max_size=3)
)  # fmt: skip


@st.composite
def arrays(draw):
    """Any bits at all, cut, turned and turned round."""
    dtype = draw(dtypes)
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    count = int(np.prod(shape, dtype=int)) * dtype.itemsize
    raw = np.random.default_rng(draw(st.integers(0, 99))).integers(
        0, 2 if dtype.kind == "b" else 256, count, np.uint8
    )
    made = raw.view(dtype).reshape(shape) if dtype.itemsize and count else np.zeros(shape, dtype)
    if made.dtype.kind == "U":
        made = np.full(shape, "aé", dtype)
    how = draw(st.sampled_from(["", "turn", "step", "back", "fortran"]))
    if made.ndim and how == "turn":
        return made.T
    if made.ndim and how == "step":
        return made[::2]
    if made.ndim and how == "back":
        return made[..., ::-1]
    return np.asfortranarray(made) if how == "fortran" else made


def same(one, other):
    """Bit-equal, of one type."""
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


@settings(max_examples=300, deadline=None)
@given(array=arrays(), by_copy=st.booleans())
def test_any_array_comes_back_bit_for_bit(array, by_copy):
    """Type, byte order, shape and bits are the same."""
    assert same(loaded({"a": array}, by_copy=by_copy)["a"], array)


@settings(max_examples=300, deadline=None)
@given(array=arrays(), by_copy=st.booleans(), order=st.sampled_from("CF"))
def test_any_array_is_filled_in_place(array, by_copy, order):
    """A live array takes the bits in its own memory."""
    live = np.zeros_like(array, order=order)
    state = {"a": live}
    restored({"a": array}, state, by_copy=by_copy)
    assert state["a"] is live
    assert same(live, array)


@settings(max_examples=100, deadline=None)
@given(dtypes.filter(lambda dtype: dtype.itemsize > 0))
def test_scalars_keep_their_type_and_bits(dtype):
    """Every scalar of NumPy; structures too."""
    scalar = np.frombuffer(
        bytes(range(1, dtype.itemsize + 1)) if dtype.kind not in "Ub" else bytes(dtype.itemsize), dtype
    )[0]
    if not isinstance(scalar, np.generic):
        return
    made = loaded({"s": scalar})["s"]
    assert type(made) is type(scalar)
    assert made.dtype == scalar.dtype
    assert made.tobytes() == scalar.tobytes()


def test_bytes_are_little_endian_whatever_the_array_is():
    """A big-endian array fills a little-endian one of the same type."""
    live = np.zeros(3)
    restored({"a": np.array([1, 2.5, np.nan], ">f8")}, {"a": live})
    assert live.tobytes() == np.array([1, 2.5, np.nan]).tobytes()
    assert saved({"a": np.array([1], ">u4")})[1].popitem()[1] == b"\x01\x00\x00\x00"


def test_read_only_and_repeating_arrays_are_replaced_in_their_parent():
    """What cannot be written gets a new array in its place."""
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    state = {"r": frozen, "b": np.broadcast_to(np.float64(0), (3,))}
    restored({"r": np.arange(3.0), "b": np.arange(3.0)}, state)
    assert state["r"] is not frozen
    assert state["r"].tolist() == state["b"].tolist() == [0, 1, 2]
    assert frozen.sum() == 0


def test_a_memory_map_is_saved_as_what_it_shows(tmp_path):
    """And filled in place."""
    path = tmp_path / "map"
    live = np.memmap(path, np.float32, "w+", shape=(4,))
    restored({"m": np.arange(4, dtype=np.float32)}, {"m": live})
    live.flush()
    assert np.fromfile(path, np.float32).tolist() == [0, 1, 2, 3]
    assert loaded({"m": live})["m"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "int4", "float6_e2m3fn"]
)
def test_types_of_ml_dtypes(name):
    """bf16, fp8 and small integers of NumPy keep their type and bits."""
    import ml_dtypes

    array = np.arange(6).astype(getattr(ml_dtypes, name)).reshape(2, 3).T
    made = loaded({"a": array, "s": array[0, 0]})
    assert same(made["a"], array)
    assert made["s"].dtype == array.dtype
    live = np.zeros((3, 2), array.dtype)
    restored({"a": array}, {"a": live})
    assert same(live, np.ascontiguousarray(array))


def test_units_of_time_are_part_of_the_type():
    """Nanoseconds do not fill days."""
    with pytest.raises(RestoreMismatch, match="M8"):
        restored({"a": np.zeros(2, "M8[ns]")}, {"a": np.zeros(2, "M8[D]")})


def test_arrays_of_more_than_two_gibibytes_are_described_in_full():
    """No byte of 6 GB is touched."""
    big = np.empty(3 * 2**28, np.float64)
    flat = flatten({"a": big})
    assert flat.pieces[0].nbytes == flat.pieces[0].source.view().nbytes == 6 * 2**30
    assert match({"a": big}, flat.entries).wanted[0].target.view().nbytes == 6 * 2**30


@pytest.mark.parametrize(
    "text",
    [
        "O", "no such type", {"of": "O", "shape": [1]}, {"names": ["a"]}, 7,
        {"names": ["a"], "formats": ["O"], "offsets": [0], "titles": [None], "itemsize": 8, "aligned": False},
    ],
)  # fmt: skip
def test_a_stored_type_with_objects_or_nonsense_is_refused(text):
    """A changed checkpoint cannot make arrays of pointers."""
    entries = [
        Container(path="", type="dict", keys=["a"]),
        Tensor(path="a", dtype="uint8", shape=(2, 8), framework="numpy", extra={"numpy": text}),
    ]
    with pytest.raises(RestoreError):
        assemble(entries)


def test_torch_tensors_without_torch_come_as_numpy(tmp_path):
    """Where torch is not installed, arrays of common types are NumPy's."""
    script = tmp_path / "load.py"
    script.write_text(
        "import sys; sys.modules['torch'] = None\n"
        "import importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'torch' else real(name, *rest)\n"
        "from everstep.format.entries import Container, Tensor\n"
        "from everstep.state import assemble\n"
        "t = Tensor(path='t', dtype='float32', shape=(2,), framework='torch')\n"
        "r = assemble([Container(path='', type='dict', keys=['t']), t])\n"
        "r.wanted[0].target.view()[:] = b'\\0\\0\\x80?' * 2\n"
        "made = r.finish()['t']\n"
        "assert type(made).__module__ == 'numpy' and made.tolist() == [1.0, 1.0]\n"
    )
    subprocess.run([sys.executable, script], check=True)


def test_the_core_does_not_import_torch_or_jax():
    """Saving NumPy arrays and plain values leaves both out."""
    code = "import sys, numpy, everstep.state as s; s.match({'a': numpy.ones(2)}, s.flatten({'a': numpy.ones(2)}).entries); assert not {'torch', 'jax'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
