"""What ranks say to each other as bytes: a value, or the error that a rank stopped with."""

from __future__ import annotations

import msgspec

import everstep.errors
from everstep.errors import CorruptObject, EverstepError

__all__ = ["Said", "Word", "decode", "encode", "named"]

Word = bytes | BaseException
"""A value, or the error that this rank stopped with."""

_VALUE, _ERROR = b"v", b"e"
_KINDS = {
    kind.code: kind
    for kind in vars(everstep.errors).values()
    if isinstance(kind, type) and issubclass(kind, EverstepError)
}


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """A word and the topic it was said to. ``word`` is a value, or an error of everstep."""

    topic: str
    word: bytes | EverstepError


class _Error(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    message: str
    hint: str = ""
    fields: dict[str, object] = {}


_READ_ERROR = msgspec.json.Decoder(
    _Error
)  # made here: two threads that make the first one at once kill the process


def encode(topic: str, word: Word) -> bytes:
    """A word as bytes: a letter, the topic, and the value or the error as JSON.

    An error that is not everstep's own becomes an `EverstepError` with its type's name and its text.
    """
    head = topic.encode() + b"\0"
    if isinstance(word, bytes):
        return _VALUE + head + word
    error = named(word)
    text = _Error(code=error.code, message=error.message, hint=error.hint, fields=error.fields)
    return _ERROR + head + msgspec.json.encode(text, enc_hook=str)


def decode(text: bytes) -> Said:
    """The word again; an error has its own class, and lists in its fields become tuples.

    Raises `CorruptObject` for bytes that `encode` did not make.
    """
    head, found, rest = text[1:].partition(b"\0")
    try:
        topic = head.decode()
        if found and text[:1] == _VALUE:
            return Said(topic=topic, word=rest)
        if found and text[:1] == _ERROR:
            error = _READ_ERROR.decode(rest)
            kind = _KINDS.get(error.code, EverstepError)
            fields = {
                name: tuple(value) if isinstance(value, list) else value
                for name, value in error.fields.items()
                if name not in {"message", "hint", "self"}
            }
            return Said(topic=topic, word=kind(error.message, hint=error.hint, **fields))
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    raise CorruptObject(
        f"a word between ranks cannot be read: {text[:40]!r}", hint="use one version on all ranks"
    )


def named(error: BaseException, rank: int | None = None) -> EverstepError:
    """The error as one of everstep's; with ``rank`` its message begins with it, and a field ``rank`` tells it."""
    if isinstance(error, EverstepError):
        kind, message, hint, fields = type(error), error.message, error.hint, error.fields
    else:
        kind, message, hint, fields = EverstepError, f"{type(error).__name__}: {error}", "", {}
    if rank is None:
        return kind(message, hint=hint, **fields)
    return kind(f"rank {rank}: {message}", hint=hint, **{"rank": rank, **fields})
