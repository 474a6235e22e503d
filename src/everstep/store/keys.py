"""What a key may be: the same in every store, so that a copy between stores never fails on a name."""

from __future__ import annotations

import re

from everstep.errors import InvalidName

__all__ = ["LONGEST_KEY", "LONGEST_PART", "RESERVED", "check_key", "check_prefix"]

LONGEST_KEY = 900
"""Bytes of a key; clouds allow 1,024 with the store's own prefix."""

LONGEST_PART = 240
"""Bytes between two slashes; file systems allow 255."""

RESERVED = ".everstep-tmp"
"""Where the local store keeps unfinished files: no key has such a part."""

_KEY = re.compile(r"[A-Za-z0-9._~+=@,-]+(?:/[A-Za-z0-9._~+=@,-]+)*")
_PREFIX = re.compile(r"(?:[A-Za-z0-9._~+=@,-]+/)*[A-Za-z0-9._~+=@,-]*")
_HINT = (
    "keys are parts of letters, digits and -._~+=@, joined by '/', without '..', no part ending with a dot"
)


def check_key(key: str) -> None:
    """Refuse what cannot be a key in some store. Raises `InvalidName`."""
    if len(key) > LONGEST_KEY:
        raise InvalidName(
            f"key {key[:80]!r}... has {len(key)} characters", hint=f"at most {LONGEST_KEY}", key=key
        )
    if not _KEY.fullmatch(key) or ".." in key or key.endswith(".") or "./" in key:
        raise InvalidName(f"{key!r} cannot be a key", hint=_HINT, key=key)
    parts = key.split("/")
    if RESERVED in parts:
        raise InvalidName(f"key {key!r} lies in {RESERVED}, which is the local store's own", key=key)
    if max(map(len, parts)) > LONGEST_PART:
        raise InvalidName(f"key {key!r} has a part of more than {LONGEST_PART} characters", key=key)


def check_prefix(prefix: str) -> None:
    """Refuse what can begin no key. The empty prefix begins every key. Raises `InvalidName`."""
    if len(prefix) > LONGEST_KEY or not _PREFIX.fullmatch(prefix) or ".." in prefix or "./" in prefix:
        raise InvalidName(f"{prefix[:80]!r} can begin no key", hint=_HINT, key=prefix)
