"""A part of what was saved, picked by patterns of paths."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Final

from msgspec.structs import replace

from everstep.errors import UsageError
from everstep.format.paths import join
from everstep.format.values import decode
from everstep.state.saved import Saved

__all__ = ["pick"]

_WHOLE: Final = frozenset(
    {"object_value", "numpy_scalar", "numpy_dtype", "torch_size", "torch_device", "torch_dtype"}
)
"""Containers that stand for one value: with a part of them it could not be made."""


def pick(root: Saved, only: Sequence[str]) -> Saved:
    """The tree with only what the patterns name and all below it; containers on the way have these children.

    ``*`` matches ``/`` too. A list with some of its items is a shorter list. What is tied to a tensor that is
    not picked is there, and that tensor's bytes with it. Raises `UsageError` for a pattern that
    names nothing, with paths like it.
    """
    for pattern in only:
        if not any(fnmatchcase(path, pattern) for path in root.everything):
            raise _nothing(pattern, root)
    found = _picked(root, tuple(only))
    assert found is not None, "each pattern names something"
    return found


def _picked(saved: Saved, only: tuple[str, ...]) -> Saved | None:
    if any(fnmatchcase(saved.path, pattern) for pattern in only):
        return saved
    entry = saved.container
    if entry is None:
        return None
    keys = [None] * entry.length if entry.keys is None else entry.keys
    texts = [str(n) if entry.keys is None else join("", decode(key)) for n, key in enumerate(keys)]
    kept = [
        (key, text, found)
        for key, text in zip(keys, texts, strict=True)
        if (found := _picked(saved.children[text], only)) is not None
    ]
    if not kept:
        return None
    if entry.type in _WHOLE:
        return saved
    if entry.keys is None:
        items = {str(n): found for n, (_, _, found) in enumerate(kept)}
        return Saved(entry=replace(entry, length=len(kept)), children=items, everything=saved.everything)
    return Saved(
        entry=replace(entry, keys=[key for key, _, _ in kept]),
        children={text: found for _, text, found in kept},
        everything=saved.everything,
    )


def _nothing(pattern: str, root: Saved) -> UsageError:
    paths = [path for path in root.everything if path]
    near = get_close_matches(pattern, paths, n=5, cutoff=0.5) or [*root.children]
    return UsageError(
        f"{pattern!r} names nothing in this checkpoint",
        hint=f"there is {', '.join(near)}; a pattern is matched against whole paths, and * matches / too",
        pattern=pattern,
        near=near,
    )
