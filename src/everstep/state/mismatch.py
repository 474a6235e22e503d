"""What does not fit between a live state and a checkpoint, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from everstep.errors import RestoreMismatch
from everstep.state.memory import Live
from everstep.state.saved import Place

__all__ = ["differs", "mismatch"]

_SHOWN: Final = 20
_MEANING: Final = ("quantizer", "numpy", "key_impl")
"""Parts of ``extra`` that say what the elements mean."""


def differs(held: Live, place: Place) -> str:
    """How a live array's shape or type is not the saved one's; empty when they are the same."""
    if held.shape != place.shape:
        return f"has shape {list(held.shape)} in the state and {list(place.shape)} in the checkpoint"
    if held.dtype != place.base.dtype:
        return f"has dtype {held.dtype} in the state and {place.base.dtype} in the checkpoint"
    for name in _MEANING:
        one, other = held.extra.get(name), place.base.extra.get(name)
        if one != other:
            return f"has {name} {one} in the state and {other} in the checkpoint"
    return ""


def mismatch(problems: Sequence[tuple[str, str]]) -> RestoreMismatch:
    """The error that names them all, each a path and what is wrong there."""
    lines = [f"  {path or 'the state'} {what}" for path, what in problems[:_SHOWN]]
    if len(problems) > _SHOWN:
        lines.append(f"  and {len(problems) - _SHOWN} more")
    paths = list(dict.fromkeys(path for path, _ in problems))
    named = ", ".join(repr(path) for path in paths[:3])
    return RestoreMismatch(
        "the state and the checkpoint differ, and nothing was changed:\n" + "\n".join(lines),
        hint=f"to restore the rest, name what to leave out: strict=False, skip=[{named}{', ...' * (len(paths) > 3)}]",
        paths=paths,
        problems=[f"{path} {what}" for path, what in problems],
    )
