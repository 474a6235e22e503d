"""Plain values and containers."""

import dataclasses
import enum
import math
import struct
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.errors import RestoreError, RestoreMismatch, UnsupportedLeaf, UsageError
from everstep.format.values import EnumValue
from everstep.state import flatten, match
from tests.state.moving import loaded, restored

texts = st.text(st.characters(codec=None), max_size=8)
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers() | texts | st.binary(max_size=8)
    | st.dates() | st.datetimes() | st.timedeltas() | st.decimals(allow_nan=False) | st.fractions() | st.uuids()
)  # fmt: skip
keys = st.none() | st.integers() | texts | st.binary(max_size=3) | st.tuples(st.integers(), texts)
arrays = st.lists(st.integers(-5, 5), max_size=4).map(lambda items: np.array(items, np.int16))


def distinct(made):
    """No two keys with one text."""
    return len({str(key) for key in made}) == len(made)


trees = st.recursive(
    scalars | arrays,
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(keys, inner, max_size=3).filter(distinct)
        | st.lists(inner, max_size=2).map(deque)
    ),
    max_leaves=12,
)  # fmt: skip


def same(one: Any, other: Any) -> bool:
    """Equal in type and value, floats by their bits."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes() and one.shape == other.shape
    if isinstance(one, float):
        return struct.pack("d", one) == struct.pack("d", other)
    if isinstance(one, complex):
        return same(one.real, other.real) and same(one.imag, other.imag)
    if isinstance(one, dict):
        return len(one) == len(other) and all(
            same(a, b) and same(one[a], other[b]) for a, b in zip(one, other, strict=True)
        )
    if isinstance(one, list | tuple | deque):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(texts, trees, max_size=4).filter(distinct))
def test_any_tree_comes_back(state):
    """Nesting, types and bits are the same after a load."""
    assert same(loaded(state), state)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(texts, trees, min_size=1, max_size=4).filter(distinct))
def test_any_tree_is_put_into_places_of_none(state):
    """A state of Nones takes whatever was saved; the caller's dict is updated."""
    live = dict.fromkeys(state)
    restored(state, live)
    assert same(live, state)


class Color(enum.Enum):
    RED = 1
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Flags(enum.Flag):
    A = 1
    B = 2


ONE_OF_EACH = {
    "none": None, "bool": True, "int": 2**200, "negative": -7, "float": 0.1, "nan": math.nan, "inf": -math.inf,
    "zero": -0.0, "complex": complex(math.nan, -0.0), "str": "ünïcode/~\n", "surrogate": "\udc80", "bytes": b"\x00\xff",
    "bytearray": bytearray(b"x"), "tuple": (1, (2, ())), "list": [1, [2, []]], "set": {1, "a"}, "frozen": frozenset({2}),
    "date": date(2026, 1, 2), "datetime": datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=2))), "time": time(1, 2),
    "delta": timedelta(microseconds=1), "path": Path("/a/b"), "pure": PurePosixPath("c"), "range": range(3), "slice": slice(1, None),
    "decimal": Decimal("1.10"), "fraction": Fraction(1, 3), "uuid": UUID(int=5), 3: "int key", (1, "t"): "tuple key", None: 0,
    "np32": np.float32(1.5), "np64": np.float64(0.1), "npbool": np.bool_(True), "npdate": np.datetime64("2026-01-02", "D"), "dtype": np.dtype("<f4"),
    "": "an empty key", "..": "dots", "a/b": "slash",
}  # fmt: skip


def test_one_of_each_comes_back_and_is_put_back():
    """Every plain type, as value and as key."""
    assert same(loaded(ONE_OF_EACH), ONE_OF_EACH)
    live = dict.fromkeys(ONE_OF_EACH)
    restored(ONE_OF_EACH, live)
    assert same(live, ONE_OF_EACH)


def test_enums_come_back_as_members_of_the_live_class():
    """Where the state shows the class; without a state they are stand-ins."""
    source = {
        "c": Color.BLUE,
        "l": Level.HIGH,
        "f": Flags.A | Flags.B,
        "list": [Color.RED, Color.BLUE],
        "set": {Color.RED},
    }
    live = {"c": Color.RED, "l": Level.LOW, "f": Flags.A, "list": [Color.BLUE], "set": {Color.BLUE}}
    restored(source, live)
    assert live == source
    assert all(type(live[name]) is type(source[name]) for name in source)
    assert loaded(source)["c"] == EnumValue("Color", "BLUE", "blue")
    with pytest.raises(RestoreMismatch, match="member of Color"):
        restored({"c": Color.RED}, {"c": None})


def test_the_callers_containers_are_changed_themselves():
    """Lists, sets, dicts and bytearrays keep their identity, the nested ones too; tuples are replaced in their parent."""
    inner, items, group, raw, bag = {"n": 0}, [], {1}, bytearray(b"a"), defaultdict(int)
    live = {
        "d": {"inner": inner, "t": (1,)},
        "items": items,
        "group": group,
        "raw": raw,
        "bag": bag,
        "epoch": 0,
    }
    restored(
        {
            "d": {"inner": {"n": 5}, "t": (2, 3)},
            "items": [1, 2],
            "group": {9},
            "raw": bytearray(b"zz"),
            "bag": defaultdict(int, x=3),
            "epoch": 3,
        },
        live,
    )
    assert live == {
        "d": {"inner": {"n": 5}, "t": (2, 3)},
        "items": [1, 2],
        "group": {9},
        "raw": b"zz",
        "bag": {"x": 3},
        "epoch": 3,
    }
    assert live["d"]["inner"] is inner
    assert live["items"] is items
    assert live["group"] is group
    assert live["raw"] is raw
    assert live["bag"] is bag
    assert bag.default_factory is int


@pytest.mark.parametrize(
    "value",
    [
        OrderedDict(b=1, a=2),
        Counter("hello"),
        defaultdict(list, x=[1]),
        deque([1, 2], maxlen=3),
        defaultdict(None, {1: 2}),
    ],
    ids=repr,
)
def test_kin_of_dict_and_list_keep_their_types(value):
    """With their order, bound and factory."""
    made = loaded({"v": value})["v"]
    assert type(made) is type(value)
    assert made == value
    assert list(made) == list(value)
    assert getattr(made, "maxlen", 0) == getattr(value, "maxlen", 0)
    assert getattr(made, "default_factory", 0) == getattr(value, "default_factory", 0)


def test_a_growing_history_is_put_back_whole():
    """A list of numbers has another length in a new process; NumPy's numbers too, and the keys of a Counter."""
    source = {
        "loss": [0.5, 0.4],
        "np": [np.float32(1), np.float32(2)],
        "seen": Counter(a=2),
        "window": deque([1, 2, 3], maxlen=3),
    }
    live = {"loss": [9.0], "np": [], "seen": Counter(b=1), "window": deque(maxlen=3)}
    window = live["window"]
    restored(source, live)
    assert same(live, source)
    assert live["window"] is window


def test_a_skipped_key_of_a_counter_stays():
    """The others are those of the checkpoint."""
    live = {"c": Counter(a=1, b=1, c=1)}
    coverage = restored({"c": Counter(a=5, b=5, d=5)}, live, strict=False, skip=["c/b", "c/d"])
    assert live["c"] == Counter(a=5, b=1)
    assert coverage.skipped == ("c/b",)
    assert coverage.unexpected == ("c/d",)


def test_a_state_as_deep_as_the_format_allows():
    """128 levels are saved and restored; one more is refused."""

    def nested(levels, leaf):
        for _ in range(levels):
            leaf = {"d": leaf}
        return leaf

    live = nested(128, 0)
    restored(nested(128, 7), live)
    assert live == nested(128, 7)
    assert loaded(nested(128, 7)) == nested(128, 7)
    with pytest.raises(UnsupportedLeaf, match="128"):
        flatten(nested(129, 7))


def test_long_bytes_and_texts_go_to_the_packs():
    """More than 4 KiB is bytes beside the entries, not text in the index."""
    state = {
        "b": b"\x01" * 5000,
        "a": bytearray(5001),
        "s": "é\ud800" * 3000,
        "in": [b"z" * 5000, 1],
        "short": b"x",
    }
    flat = flatten(state)
    assert [(p.path, p.nbytes) for p in flat.pieces] == [
        ("b", 5000),
        ("a", 5001),
        ("s", 15000),
        ("in/0", 5000),
    ]
    assert same(loaded(state), state)
    live = {"b": b"", "a": bytearray(), "s": "", "in": [], "short": b""}
    restored(state, live)
    assert same(live, state)


@dataclasses.dataclass
class Config:
    rate: float
    layers: list[int]
    color: Color = Color.RED
    weights: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    step: int
    mean: Any
    apply: Any = dataclasses.field(default=print, metadata={"pytree_node": False})


Point = namedtuple("Point", "x y")  # noqa: PYI024 - the other kind is in the tests of jax


def test_dataclasses_are_saved_by_field():
    """A live one is changed, a frozen one replaced; static fields stay; without a template they are dicts."""
    source = {"c": Config(0.1, [1, 2], Color.BLUE, np.ones(2)), "f": Frozen(3, np.ones(2))}
    live = {"c": Config(0.5, [], Color.RED, np.zeros(2)), "f": Frozen(0, np.zeros(2))}
    config, mean = live["c"], live["f"].mean
    restored(source, live)
    assert live["c"] is config
    assert (config.rate, config.layers, config.color) == (0.1, [1, 2], Color.BLUE)
    assert live["f"].step == 3
    assert live["f"].mean is mean
    assert mean.sum() == 2
    assert live["f"].apply is print
    assert loaded(source)["c"]["layers"] == [1, 2]


def test_named_tuples_are_saved_by_field():
    """They come back as the live class, without a template as a class with the same fields."""
    source = {"p": Point(1, np.ones(2)), "nested": (Point(1, Point(2, 3)), [Point(4, 5)])}
    live = {"p": Point(0, np.zeros(2)), "nested": (Point(0, Point(0, 0)), [])}
    with pytest.raises(RestoreMismatch, match="Point"):
        restored(source, live)
    live["nested"] = (Point(0, Point(0, 0)), [Point(0, 0)])
    restored(source, live)
    assert type(live["p"]) is Point
    assert live["p"].x == 1
    assert live["nested"] == source["nested"]
    assert type(live["nested"][1][0]) is Point
    made = loaded(source)["p"]
    assert made._fields == ("x", "y")
    assert made.x == 1


def loop():
    """A list that contains itself."""
    made: list[Any] = []
    made.append(made)
    return made


def deep():
    """A list in a list, 200 times."""
    made: Any = np.zeros(1)
    for _ in range(200):
        made = [made]
    return made


class Sub(dict):
    """A dict with ideas of its own."""


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (lambda: None, "function"), (print, "builtin"), (object(), "object"), (int, "type"), (loop(), "contains itself"),
        (deep(), "nested"), (np.array([None]), "Python objects"), ({object(): np.zeros(1)}, "key"),
        ({1: np.zeros(1), "1": 0}, "same text"), (Sub(), "Sub"), (np.ma.masked_array([1]), "subclass"), ({1, (2, print)}, "not plain"),
        (np.array(["a"], dtype=np.dtypes.StringDType()), "Python objects"), (memoryview(b"x"), "memoryview"), (type("Int", (int,), {})(3), "Int"),
    ],
)  # fmt: skip
def test_what_cannot_be_saved_is_refused_by_path_and_type(value, says):
    """With a hint, and nothing is pickled."""
    with pytest.raises(UnsupportedLeaf, match=says) as caught:
        flatten({"a": {"b": [0, value]}})
    assert caught.value.fields["path"].startswith("a/b/1")
    assert caught.value.hint


def test_an_open_file_is_refused(tmp_path):
    """By path and type, as anything else that is tied to this process."""
    with (
        (tmp_path / "log").open("w") as file,
        pytest.raises(UnsupportedLeaf, match=r"log is of type _io.TextIOWrapper"),
    ):
        flatten({"log": file})


@pytest.mark.parametrize(
    ("source", "live", "says"),
    [
        ({"a": 1}, {"b": 1}, ["b is in the state and not", "a is in the checkpoint and not"]),
        ({"a": {"x": 1}}, {"a": 5}, ["a is a plain value in the state and a dict"]),
        ({"a": 5}, {"a": {"x": 1}}, ["a is a dict in the state"]),
        ({"a": np.zeros(2)}, {"a": 5}, ["a is a plain value in the state and an array"]),
        ({"a": 5}, {"a": np.zeros(2)}, ["a is an array in the state and none"]),
        ({"a": [np.zeros(2)]}, {"a": [np.zeros(2), np.zeros(3)]}, ["a/1 is in the state"]),
        (
            {"a": np.zeros(2), "b": np.zeros(3, "f4")},
            {"a": np.zeros(3), "b": np.zeros(3)},
            ["a has shape [3]", "b has dtype float64"],
        ),
        ({}, {"a": 1}, ["a is in the state"]),
    ],
)
def test_every_difference_is_told_before_anything_changes(source, live, says):
    """By path, all at once."""
    before = repr(live)
    with pytest.raises(RestoreMismatch) as caught:
        restored(source, live)
    assert all(text in str(caught.value) for text in says)
    assert repr(live) == before
    restored(source, live, strict=False, skip=["*"])
    assert repr(live) == before


def test_strictness_is_said_in_full():
    """strict=False without a name, and names without strict=False, are refused."""
    entries = flatten({"a": 1}).entries
    with pytest.raises(UsageError, match="strict=False"):
        match({"a": 1}, entries, strict=False)
    with pytest.raises(UsageError, match="strict=True"):
        match({"a": 1}, entries, skip=["a"])
    with pytest.raises(UsageError, match="must be a dict"):
        flatten([1])  # type: ignore[arg-type]


def test_a_mapping_that_is_no_dict():
    """Its parts are filled; what must be replaced in it is told."""
    part = {"n": 0}
    restored({"p": {"n": 4}}, MappingProxyType({"p": part}))
    assert part == {"n": 4}
    with pytest.raises(RestoreError, match="cannot be changed"):
        restored({"p": 4}, MappingProxyType({"p": 0}))
