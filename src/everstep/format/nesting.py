"""How deep JSON text is nested, found before it is parsed: by whole passes over the bytes, never by recursion."""

from __future__ import annotations

from typing import Final

__all__ = ["nested_too_deep", "too_many_nodes"]

_KEPT: Final = b'"[]{}'
_DROPPED: Final = bytes(set(range(256)) - set(_KEPT))
_ONE_KIND: Final = bytes.maketrans(b"{}", b"[]")


def too_many_nodes(text: bytes, limit: int) -> bool:
    """Whether the text could have more than ``limit`` values; commas in strings are counted too."""
    return text.count(b",") + text.count(b"[") + text.count(b"{") > limit


def nested_too_deep(text: bytes, limit: int) -> bool:
    """Whether arrays and objects nest more than ``limit`` deep, or do not match up.

    Strings are taken out first, so that brackets in them do not count. Then each pass takes away the
    innermost brackets: valid text of depth d is gone after d passes.
    """
    if b"\\" in text:  # a backslash pairs with the next character; only an escaped quote matters
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    brackets = text.translate(_ONE_KIND, _DROPPED)
    brackets = brackets.replace(b'""', b"")  # also joins neighbouring strings, which keeps in and out apart
    if b'"' in brackets:
        brackets = b"".join(brackets.split(b'"')[::2])
    too_deep = b"[" * (limit + 1)
    for _ in range(limit):
        if not brackets or too_deep in brackets:
            break
        fewer = brackets.replace(b"[]", b"")
        if len(fewer) == len(brackets):
            break
        brackets = fewer
    return bool(brackets)
