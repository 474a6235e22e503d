"""Plain values go to JSON and back exactly."""

from __future__ import annotations

import contextlib
import enum
import math
import pathlib
import struct
import uuid
from collections import OrderedDict, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.errors import InvalidManifest
from everstep.format.values import EnumValue, decode, encode


class Colour(enum.Enum):
    RED = 1
    PAIR = (1, "two")


class Access(enum.Flag):
    READ = 1
    WRITE = 2


def same(a, b):
    """Equal to the bit: types, NaN payloads, signs of zero, order of dicts, folds."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return struct.pack(">d", a) == struct.pack(">d", b)
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a), list(b)) and same(list(a.values()), list(b.values()))
    if isinstance(a, slice):
        return same((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    if isinstance(a, Decimal):
        return a.as_tuple() == b.as_tuple()
    if isinstance(a, datetime | time):
        return a == b and a.fold == b.fold and str(a.tzinfo) == str(b.tzinfo)
    if isinstance(a, set | frozenset):
        return encode(a) == encode(b)
    return a == b


def through_json(value):
    """The value after a round through JSON text."""
    stored = msgspec.json.encode(encode(value), order="deterministic")
    return decode(msgspec.json.decode(stored))


def one(among):
    """The same strategy under a short name: hypothesis prints a nested one in full, at length."""

    @st.composite
    def drawn(draw):
        return draw(among)

    return drawn()


any_float = st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack(">d", bits.to_bytes(8, "big"))[0])
any_text = st.text(st.characters(exclude_categories=()))
zones = st.one_of(
    st.none(),
    st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23))),
    st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23)), any_text),
    st.sampled_from(["Europe/Berlin", "UTC"]).map(ZoneInfo),
)
folds = st.sampled_from([0, 1])
hashable_leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**200), 2**200),
    st.floats(allow_nan=False),
    any_text,
    st.binary(),
    st.builds(lambda d, f: d.replace(fold=f), st.datetimes(), folds),
    st.builds(lambda d, z, f: d.replace(tzinfo=z, fold=f), st.datetimes(), zones, folds),
    st.builds(lambda t, z, f: t.replace(tzinfo=z, fold=f), st.times(), zones, folds),
    st.dates(),
    st.timedeltas(),
    zones,
    st.decimals(allow_nan=False),
    st.fractions(),
    st.uuids(),
    st.builds(range, st.integers(), st.integers(), st.integers(1, 9)),
    any_text.map(lambda t: pathlib.PurePosixPath(t.replace("\0", ""))),
    any_text.map(lambda t: pathlib.PureWindowsPath(t.replace("\0", ""))),
    st.builds(EnumValue, st.text(), st.text(), st.integers()),
    st.just(...),
)
nested_hashables = st.recursive(
    one(hashable_leaves),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
)
hashables = one(nested_hashables)
leaves = st.one_of(
    hashables,
    any_float,
    st.builds(complex, any_float, any_float),
    st.binary().map(bytearray),
    st.sets(hashables, max_size=3),
    st.decimals(),
    st.builds(slice, hashables, hashables, any_float),
)
nested_values = st.recursive(
    one(leaves),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(hashables, inner, max_size=4),
    ),
    max_leaves=12,
)


@given(one(nested_values))
def test_every_supported_value_comes_back_as_it_was(value):
    """Types, bits and order survive."""
    assert same(through_json(value), value)


@pytest.mark.parametrize(
    "value",
    [
        2**53,
        2**53 + 1,
        -(2**53) - 1,
        2**70,
        -0.0,
        math.inf,
        struct.unpack(">d", bytes.fromhex("7ff0000000000001"))[0],
        "\ud800",
        "\ud83d\ude00",
        "a\0b",
        [[], (), {}, set(), frozenset()],
        {1: "int", "1": "str", (1, 2): None, None: 0},
        datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
        UTC,
        timezone(timedelta(hours=1), "CET"),
        Decimal("sNaN12"),
        Decimal("-0E+7"),
        Fraction(1, 3),
        uuid.UUID(int=7),
        slice(None, 3),
        pathlib.Path("/tmp/x"),
        pathlib.PureWindowsPath("C:\\x"),
        date(1, 1, 1),
        time(23, 59, 59, 999999, fold=1),
        timedelta(days=-1, microseconds=1),
    ],
    ids=repr,
)
def test_hard_values_come_back(value):
    """The values that other formats lose."""
    assert same(through_json(value), value)


def test_what_json_holds_stands_as_itself():
    """Plain values are readable in the file."""
    plain = [None, True, 3, 2.5, "x", [1, [2]]]
    assert encode(plain) == plain


def test_an_enum_comes_back_as_a_stand_in_that_stores_alike():
    """No class is imported; a stand-in is stored as the member was."""
    for member, name in [
        (Colour.RED, "RED"),
        (Colour.PAIR, "PAIR"),
        (Access.READ | Access.WRITE, "READ|WRITE"),
    ]:
        back = through_json(member)
        assert back == EnumValue(type(member).__qualname__, name, member.value)
        assert encode(back) == encode(member)
    assert through_json({Colour.RED: 1}) == {EnumValue("Colour", "RED", 1): 1}


def test_equal_sets_have_equal_bytes():
    """The order of insertion into a set leaves no trace."""
    assert encode({"a", "b", "c", 10, 11}) == encode({11, "c", 10, "b", "a"})


def test_what_cannot_be_stored_is_refused_by_type():
    """Unknown kinds, subclasses and endless values raise TypeError."""
    endless = []
    endless.append(endless)
    point = namedtuple("point", "x")  # noqa: PYI024
    for value in [object(), OrderedDict(), point(1), lambda: 0, int, endless, [object()], {"a": {object()}}]:
        with pytest.raises(TypeError):
            encode(value)


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"a": 1},
        {"$": 1},
        {"$": []},
        {"$": "nothing"},
        {"$": "int"},
        {"$": "int", "hex": "0x1"},
        {"$": "int", "hex": "1_0"},
        {"$": "int", "hex": 5},
        2**53 + 1,
        {"$": "float", "bits": "7ff"},
        {"$": "bytes", "b64": "&"},
        {"$": "bytes", "b64": 1},
        {"$": "str", "b64": "/w=="},
        {"$": "tuple", "items": {}},
        {"$": "set", "items": [1, 1]},
        {"$": "set", "items": [[]]},
        {"$": "dict", "keys": [1, 1], "values": [1, 2]},
        {"$": "dict", "keys": [1], "values": []},
        {"$": "dict", "keys": [[]], "values": [1]},
        {"$": "range", "parts": [0, 1, 0]},
        {"$": "range", "parts": [0, 1]},
        {"$": "fraction", "parts": [1, 0]},
        {"$": "complex", "parts": ["1", "2"]},
        {"$": "decimal", "text": "x"},
        {"$": "datetime", "iso": "yesterday", "fold": 0, "tz": None},
        {"$": "datetime", "iso": "2026-01-01", "fold": 2, "tz": None},
        {"$": "datetime", "iso": "2026-01-01", "fold": 0, "tz": 3},
        {"$": "timedelta", "days": 10**12, "seconds": 0, "us": 0},
        {"$": "timezone", "us": 10**15, "name": None},
        {"$": "zoneinfo", "key": "../../etc/passwd"},
        {"$": "zoneinfo", "key": "/etc/localtime"},
        {"$": "path", "kind": "Path", "text": "x"},
        {"$": "uuid", "hex": "7"},
    ],
    ids=repr,
)
def test_a_broken_stored_value_is_refused(stored):
    """What `encode` never makes raises InvalidManifest and nothing else."""
    with pytest.raises(InvalidManifest):
        decode(stored)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["$", "items", "keys", "values", "hex", "b64", "parts", "iso", "tz"]), inner
        )
        | st.fixed_dictionaries(
            {
                "$": st.sampled_from(
                    ["int", "dict", "set", "tuple", "datetime", "time", "range", "slice", "timezone", "enum"]
                )
            },
            optional=dict.fromkeys(
                ["items", "keys", "values", "parts", "iso", "tz", "fold", "us", "name", "value"], inner
            ),
        )
    ),
    max_leaves=10,
)


@given(json_like)
def test_no_stored_value_fails_with_anything_but_invalid_manifest(stored):
    """Arbitrary JSON either decodes or raises InvalidManifest."""
    with contextlib.suppress(InvalidManifest):
        decode(stored)
