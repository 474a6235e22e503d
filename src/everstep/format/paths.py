"""Paths of entries: how a key becomes a component, and how a path comes apart again."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["component", "components", "join", "parent", "path_fault", "unescape"]

_SPECIAL: Final = re.compile(r"[~/\x00-\x1f\x7f\ud800-\udfff]")
_ESCAPE: Final = re.compile(r"~(?:0|1|e|x([0-9a-f]{4}))")
_BAD: Final = re.compile(
    r"(?:^|/)(?:/|$)|(?:^|/)\.\.?(?:/|$)|~(?!0|1|e|x[0-9a-f]{4})|[\x00-\x1f\x7f\ud800-\udfff]"
)


def component(key: object) -> str:
    """One key as a component of a path: its text, with the characters that a path cannot hold escaped.

    ``~0`` is ``~``, ``~1`` is ``/``, ``~e`` the empty text, ``~x`` and four hexadecimal digits a control
    character, a lone surrogate, or the first dot of ``.`` and ``..``.
    """
    text = str(key)
    if text in ("", ".", ".."):
        return f"~x002e{text[1:]}" if text else "~e"
    return _SPECIAL.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    return {"~": "~0", "/": "~1"}.get(match[0]) or f"~x{ord(match[0]):04x}"


def unescape(component: str) -> str:
    """The text of the key that `component` was given."""
    return _ESCAPE.sub(_unescaped, component)


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else {"~0": "~", "~1": "/", "~e": ""}[match[0]]


def join(parent: str, key: object) -> str:
    """The path of a child."""
    return f"{parent}/{component(key)}" if parent else component(key)


def components(path: str) -> tuple[str, ...]:
    """The components of a path, still escaped; none for the root."""
    return tuple(path.split("/")) if path else ()


def parent(path: str) -> str:
    """The path of the container that an entry other than the root is in."""
    return path.rpartition("/")[0]


def path_fault(path: str) -> str:
    """Why a text cannot be the path of an entry; empty when it can. The root's empty path can."""
    if not path:
        return ""
    match = _BAD.search(path)
    return f"{match[0]!r} at character {match.start()}" if match else ""
