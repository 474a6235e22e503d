"""Structs as bytes and back: one text for each struct, and nothing else is read.

The text is JSON without spaces, keys in the order of the fields, numbers in their shortest form. A reader
parses, writes again and compares: text that says a thing twice or in another way is refused, so no two
readers can see two meanings. Fields that this version does not know are passed over. Small records end in
``check``, the digest of the rest; indexes and manifests have their digests in their names. What ranks tell
each other in a save (`check_words`) is written in the same form and is not stored.
"""

from __future__ import annotations

import os
import re
import threading
from typing import Any, Final, TypeVar

import msgspec

from everstep.errors import CorruptObject, InvalidManifest, UnsupportedFormat
from everstep.format.announcement import Announcement
from everstep.format.check_index import check_index, check_manifest
from everstep.format.check_records import Record, check_record
from everstep.format.check_words import Word, check_word
from everstep.format.digests import digest_of
from everstep.format.faults import Faults
from everstep.format.index import Index
from everstep.format.limits import (
    FORMAT_MAJOR,
    MAX_INDEX_BYTES,
    MAX_JSON_DEPTH,
    MAX_JSON_NODES,
    MAX_MANIFEST_BYTES,
    MAX_RECORD_BYTES,
)
from everstep.format.manifest import Manifest
from everstep.format.nesting import nested_too_deep, too_many_nodes
from everstep.format.outline import Outline
from everstep.format.replicas import Copies

__all__ = ["Wire", "check_index", "check_manifest", "check_record", "from_bytes", "to_bytes"]

Wire = Record | Index | Manifest | Word
T = TypeVar("T", bound=Wire)
S = TypeVar("S", bound=msgspec.Struct)

_UNSEALED: Final = (Index, Manifest, Announcement, Outline, Copies)
_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
_PLAIN: Final = msgspec.json.Encoder()
_CHECK: Final = b',"check":"'
_CHECK_BYTES: Final = len(_CHECK) + 64 + 2
_PLACE: Final = re.compile(r" - at `\$\.?(.*)`$")


_decoders: dict[type[msgspec.Struct], msgspec.json.Decoder[Any]] = {}
_decoders_lock = threading.Lock()
os.register_at_fork(  # a child has no thread that would finish a decoder
    before=_decoders_lock.acquire,
    after_in_parent=_decoders_lock.release,
    after_in_child=_decoders_lock.release,
)


class _Head(msgspec.Struct):
    format: int


def to_bytes(struct: Wire) -> bytes:
    """The object's bytes, the same for equal structs.

    What a reader would refuse is not written: raises `InvalidManifest` naming the field.
    """
    what = type(struct).__name__
    try:
        text = _ENCODER.encode(struct)
    except (UnicodeEncodeError, OverflowError, RecursionError) as error:
        raise Faults(what).fail("text", f"JSON cannot hold it: {error}") from error
    if not isinstance(struct, _UNSEALED):
        text = text[:-1] + _CHECK + digest_of(text).encode() + b'"}'
    _check_size(text, type(struct), what)
    _check_form(text, what)
    _check(struct, what)
    return text


def from_bytes(text: bytes, kind: type[T], *, what: str = "") -> T:
    """The struct that `to_bytes` was given, with every bound checked.

    ``what`` names the object in errors: its key. Raises `CorruptObject` when a record's ``check`` does not
    match, `UnsupportedFormat` for another major version, `InvalidManifest` naming the field for all else.
    """
    what = what or kind.__name__
    _check_size(text, kind, what)
    if not issubclass(kind, _UNSEALED):
        text = _without_check(text, what)
    _check_form(text, what)
    struct = _parse(text, kind, what)
    if struct.format != FORMAT_MAJOR:
        raise _other_major(struct.format, what)
    if _ENCODER.encode(struct) != text:
        _check_plain(text, what)
    _check(struct, what)
    return struct


def _check_size(text: bytes, kind: type[object], what: str) -> None:
    limits: dict[type[object], int] = {
        Index: MAX_INDEX_BYTES,
        Manifest: MAX_MANIFEST_BYTES,
        Outline: MAX_INDEX_BYTES,
        Copies: MAX_INDEX_BYTES,
    }
    limit = limits.get(kind, MAX_RECORD_BYTES)
    if len(text) > limit:
        raise Faults(what).fail("size", f"{len(text)} bytes, more than {limit}")


def _check_form(text: bytes, what: str) -> None:
    if too_many_nodes(text, MAX_JSON_NODES):
        raise Faults(what).fail("size", f"more than {MAX_JSON_NODES} values")
    if nested_too_deep(text, MAX_JSON_DEPTH):
        raise Faults(what).fail("depth", f"nested more than {MAX_JSON_DEPTH} deep, or brackets do not match")


def _without_check(text: bytes, what: str) -> bytes:
    """A record's text without its last field, which must be the digest of the rest."""
    rest = text[:-_CHECK_BYTES] + b"}"
    if text[-_CHECK_BYTES:] != _CHECK + digest_of(rest).encode() + b'"}':
        raise CorruptObject(
            f"{what}: its bytes are not what was written: the field 'check' does not match the rest",
            hint="run everstep verify; the object must be restored from a copy",
            what=what,
            field="check",
        )
    return rest


def _parse(text: bytes, kind: type[T], what: str) -> T:
    try:
        return _decoder(kind).decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        found = _major(text)
        if found is not None and found != FORMAT_MAJOR:
            raise _other_major(found, what) from error
        place = _PLACE.search(str(error))
        raise Faults(what).fail(place[1] if place else "text", _PLACE.sub("", str(error))) from error


def _decoder(kind: type[S]) -> msgspec.json.Decoder[S]:
    """The kind's decoder, made by one thread at a time.

    msgspec learns a struct's fields when the first decoder of it is made, and runs Python code meanwhile; a second
    thread that decodes the same struct then reads what is half made, and the process dies (seen with 0.22.0).
    """
    found = _decoders.get(kind)
    if found is None:
        with _decoders_lock:
            found = _decoders.setdefault(kind, msgspec.json.Decoder(kind))
    return found


def _major(text: bytes) -> int | None:
    try:
        return _decoder(_Head).decode(text).format
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _other_major(found: int, what: str) -> InvalidManifest | UnsupportedFormat:
    if found < 1:
        return Faults(what).fail("format", f"{found} is not a version")
    return UnsupportedFormat(
        f"{what}: written in format {found}; this version reads format {FORMAT_MAJOR}",
        hint="upgrade everstep to read it",
        what=what,
        format=found,
    )


def _check_plain(text: bytes, what: str) -> None:
    """Text with fields of a newer minor version: still the one way to write what it says."""
    faults = Faults(what)
    try:
        plain: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # in what the struct's reader passed over
        raise faults.fail("text", str(error)) from error
    if _PLAIN.encode(plain) != text:
        raise faults.fail("text", "a key is there twice, or the text is not in its one form")


def _check(struct: Wire, what: str) -> None:
    if isinstance(struct, Index):
        check_index(struct, what)
    elif isinstance(struct, Manifest):
        check_manifest(struct, what)
    elif isinstance(struct, Announcement | Outline | Copies):
        check_word(struct, what)
    else:
        check_record(struct, what)
