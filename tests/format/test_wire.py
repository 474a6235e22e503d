"""One text for each struct, and nothing else is read."""

from __future__ import annotations

import contextlib
import json
import struct as machine

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.errors import CorruptObject, EverstepError, IntegrityError, InvalidManifest, UnsupportedFormat
from everstep.format.digests import digest_of
from everstep.format.index import Index
from everstep.format.limits import MAX_RECORD_BYTES
from everstep.format.manifest import Manifest
from everstep.format.records import RunRecord, Summary
from everstep.format.wire import from_bytes, to_bytes
from tests.format.examples import INDEX, MANIFEST, OBJECTS

RECORDS = [name for name, struct in OBJECTS.items() if not isinstance(struct, Index | Manifest)]


def sealed(text):
    """A record's text with the ``check`` that belongs to it."""
    return text[:-1] + b',"check":"' + digest_of(text).encode() + b'"}'


def changed(struct, **fields):
    """The struct's bytes with some fields changed, past all checks of the writer."""
    stored = msgspec.json.encode(msgspec.structs.replace(struct, **fields), order="deterministic")
    return stored if isinstance(struct, Index | Manifest) else sealed(stored)


@pytest.mark.parametrize("name", OBJECTS)
def test_every_object_comes_back(name):
    """What is written is read, the same."""
    assert from_bytes(to_bytes(OBJECTS[name]), type(OBJECTS[name])) == OBJECTS[name]


def test_equal_structs_have_equal_bytes():
    """The order in which a dict was filled leaves no trace."""
    commit = OBJECTS["commit"]
    one, two = (
        msgspec.structs.replace(commit, summary=msgspec.structs.replace(commit.summary, metrics=metrics))
        for metrics in ({"a": 1, "b": 2}, {"b": 2, "a": 1})
    )
    assert to_bytes(one) == to_bytes(two)


@given(st.integers(0, 2**63 - 1).map(lambda bits: machine.unpack(">d", bits.to_bytes(8, "big"))[0]))
def test_every_time_comes_back_to_the_bit(created):
    """Floats in a record are exact; what is not a time is refused on writing."""
    run = msgspec.structs.replace(OBJECTS["run"], created=created)
    if created - created == 0:
        assert from_bytes(to_bytes(run), RunRecord) == run
    else:
        with pytest.raises(InvalidManifest):
            to_bytes(run)


@pytest.mark.parametrize("name", OBJECTS)
def test_fields_of_a_later_minor_version_are_passed_over(name):
    """Unknown fields, with floats and nesting, do not hinder reading."""
    struct = OBJECTS[name]
    text = msgspec.json.encode(struct, order="deterministic")
    later = text[:-1] + b',"zz":{"deep":[1,2.5,"x"],"b":null}}'
    if name in RECORDS:
        later = sealed(later)
    assert from_bytes(later, type(struct)) == struct


@pytest.mark.parametrize("name", OBJECTS)
def test_another_major_version_is_refused_with_a_hint(name):
    """Also when the rest of the object is unlike anything known."""
    struct = OBJECTS[name]
    for text in (changed(struct, format=2), b'{"format":2,"run":7}'):
        later = sealed(text) if name in RECORDS and b'"check"' not in text else text
        with pytest.raises(UnsupportedFormat, match="format 2") as caught:
            from_bytes(later, type(struct), what="key")
        assert "upgrade" in caught.value.hint
    with pytest.raises(InvalidManifest):
        from_bytes(changed(struct, format=0), type(struct))


@pytest.mark.parametrize("name", ["index", "manifest"])
@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text[:-1] + b',"run":"gpt-small"}',
        lambda text: text[:-1] + b',"zz":1,"zz":1}',
        lambda text: text.replace(b'"metrics":{', b'"metrics":{"loss":0.25,', 1),
        lambda text: text.replace(b":", b": ", 1),
        lambda text: text + b"\n",
        lambda text: text.replace(b'"run"', b'"\\u0072un"', 1),
        lambda text: text.replace(b'"bytes":152', b'"bytes":152.0', 1),
        lambda text: text.replace(b'"bytes":152', b'"bytes":0152', 1),
        lambda text: b"\xef\xbb\xbf" + text,
        lambda text: text[:-1],
        lambda text: text + text,
        lambda text: b"",
    ],
    ids=range(12),
)
def test_text_in_any_other_form_is_refused(name, edit):
    """A key twice, at any depth, spaces, other escapes, other spellings of a number."""
    text = to_bytes(OBJECTS[name])
    other = edit(text)
    assert other != text
    with pytest.raises(InvalidManifest):
        from_bytes(other, type(OBJECTS[name]))


def test_an_error_names_the_object_and_the_field():
    """The place of a wrong type stands in the error."""
    text = json.dumps(
        json.loads(to_bytes(MANIFEST)) | {"indexes": [[0, 5, 1]]}, separators=(",", ":")
    ).encode()
    with pytest.raises(InvalidManifest, match=r"some/key: indexes\[0\]\[1\]") as caught:
        from_bytes(text, Manifest, what="some/key")
    assert caught.value.fields == {"what": "some/key", "field": "indexes[0][1]"}


@pytest.mark.parametrize("name", RECORDS)
def test_any_flipped_bit_of_a_record_is_detected(name):
    """Every single bit of every record."""
    text = to_bytes(OBJECTS[name])
    for position in range(len(text)):
        for bit in range(8):
            flipped = bytearray(text)
            flipped[position] ^= 1 << bit
            with pytest.raises(CorruptObject, match="some/key"):
                from_bytes(bytes(flipped), type(OBJECTS[name]), what="some/key")


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_cut_short_or_grown_is_detected(name):
    """At every length."""
    text = to_bytes(OBJECTS[name])
    for cut in [*(text[:n] for n in range(len(text))), text + b" ", text + text]:
        with pytest.raises(IntegrityError):
            from_bytes(cut, type(OBJECTS[name]))


@given(st.data())
@settings(max_examples=300)
def test_a_flipped_bit_elsewhere_never_escapes_as_another_error(data):
    """An index or manifest is guarded by its digest; what gets past that still only fails in our words."""
    struct = data.draw(st.sampled_from([INDEX, MANIFEST]))
    text = bytearray(to_bytes(struct))
    for _ in range(data.draw(st.integers(1, 3))):
        text[data.draw(st.integers(0, len(text) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(EverstepError):
        from_bytes(bytes(text), type(struct))


@given(
    st.sampled_from(sorted(OBJECTS)),
    st.binary(max_size=200) | st.text('{}[]",:0123456789ae.-\\', max_size=100),
)
@settings(max_examples=300)
def test_arbitrary_bytes_never_escape_as_another_error(name, junk):
    """Whatever a store holds, reading it raises one of our errors."""
    text = junk.encode() if isinstance(junk, str) else junk
    for body in (text, sealed(text + b"}")):
        with contextlib.suppress(IntegrityError):
            from_bytes(body, type(OBJECTS[name]))


@pytest.mark.parametrize("name", ["commit", "index", "manifest"])
def test_a_million_brackets_are_refused_by_depth(name):
    """Deep nesting is found before anything is parsed."""
    for text in (
        b'{"format":1,"x":' + b"[" * 10**6 + b"]" * 10**6 + b"}",
        b'{"a":' * 10**5 + b"}",
        b"[" * 10**6 + b"}",
    ):
        with pytest.raises(InvalidManifest) as caught:
            from_bytes(sealed(text) if name in RECORDS else text, type(OBJECTS[name]))
        assert caught.value.fields["field"] == "depth"


def test_an_object_over_its_size_is_refused_before_it_is_parsed(monkeypatch):
    """The limit is named."""
    with pytest.raises(InvalidManifest, match=str(MAX_RECORD_BYTES)):
        from_bytes(b" " * (MAX_RECORD_BYTES + 1), RunRecord)
    with pytest.raises(InvalidManifest, match=str(MAX_RECORD_BYTES)):
        to_bytes(msgspec.structs.replace(OBJECTS["run"], keep="x" * MAX_RECORD_BYTES))
    monkeypatch.setattr("everstep.format.wire.MAX_JSON_NODES", 20)
    with pytest.raises(InvalidManifest, match="20 values"):
        from_bytes(sealed(b"{" + b"," * 20 + b"}"), RunRecord)


def test_what_json_cannot_hold_is_not_written():
    """A lone surrogate outside an encoded value."""
    with pytest.raises(InvalidManifest):
        to_bytes(msgspec.structs.replace(OBJECTS["run"], keep="\ud800"))


def test_a_record_of_another_kind_is_refused():
    """A plan under a commit's key, and so on."""
    for name in RECORDS:
        for other in RECORDS:
            if type(OBJECTS[name]) is not type(OBJECTS[other]):
                with contextlib.suppress(IntegrityError):
                    assert not from_bytes(to_bytes(OBJECTS[name]), type(OBJECTS[other]))
    with pytest.raises(InvalidManifest):
        from_bytes(
            sealed(msgspec.json.encode(Summary(created=1, bytes=1, stored_bytes=1, world=1))), RunRecord
        )
