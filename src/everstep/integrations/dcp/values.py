"""Objects of a state dict that are no tensors: as entries of ours, never as a pickle, and back as DCP wants them."""

from __future__ import annotations

import io
from pickle import UnpicklingError
from typing import Any, Final

import torch
from msgspec.structs import replace

from everstep.errors import UnsupportedLeaf
from everstep.format.entries import Alias, Container, Entry, Value
from everstep.integrations.dcp.names import Keys, name_of, path_of
from everstep.integrations.dcp.tree import Leaf
from everstep.state.conversion import flatten
from everstep.state.flat import Flat, Piece

__all__ = ["as_file", "from_file", "object_leaf"]

_TOP: Final = "v"
_NOT_REBUILT: Final = frozenset(
    {"namedtuple", "dataclass", "object", "module", "optimizer", "rng", "generator", "per_rank", "stage"}
)
"""Containers of classes: what is read without the class is a dict, and DCP would put that in the object's place."""
_HINT: Final = (
    "make it plain values, lists, dicts, tuples, tensors or arrays, or leave it out of the state dict"
)


def object_leaf(keys: Keys, value: object) -> tuple[Leaf, tuple[Piece, ...]]:
    """The leaf of an object, and the bytes that go to packs (arrays, tensors in tuples, long texts).

    Raises `UnsupportedLeaf` naming it when it would not come back as what it was.
    """
    name, path = name_of(keys), path_of(keys)
    try:
        flat: Flat = flatten({_TOP: value})
    except UnsupportedLeaf as error:
        below = str(error.fields.get("path", ""))[len(_TOP) :]
        raise UnsupportedLeaf(
            f"{name}{below}: of type {type(value).__name__}, cannot be stored: {error.message}",
            hint=_HINT,
            path=name,
            type=type(value).__name__,
        ) from None
    entries = tuple(_moved(entry, path) for entry in flat.entries[1:])
    for entry in entries:
        _check(entry, name)
    flat.synchronize()
    pieces = tuple(_moved_piece(piece, path) for piece in flat.pieces)
    return Leaf(keys=keys, entries=entries), pieces


def _moved(entry: Entry, path: str) -> Entry:
    moved = replace(entry, path=path + entry.path[len(_TOP) :])
    return replace(moved, of=path + moved.of[len(_TOP) :]) if isinstance(moved, Alias) else moved


def _moved_piece(piece: Piece, path: str) -> Piece:
    return Piece(
        path=path + piece.path[len(_TOP) :],
        dtype=piece.dtype,
        box=piece.box,
        nbytes=piece.nbytes,
        source=piece.source,
    )


def _check(entry: Entry, name: str) -> None:
    what = ""
    if isinstance(entry, Container) and entry.type in _NOT_REBUILT:
        what = f"{entry.name or entry.type} would come back as plain data"
    elif isinstance(entry, Value) and _has_enum(entry.value):
        what = "an enum's class cannot be found again"
    if what:
        raise UnsupportedLeaf(f"{name} cannot be stored: {what}", hint=_HINT, path=name)


def _has_enum(stored: Any) -> bool:
    waiting = [stored]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if value.get("$") == "enum":
                return True
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return False


def as_file(value: object) -> io.BytesIO:
    """The value as DCP's planners load it: what ``torch.save`` makes of it, in memory only."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


def from_file(name: str, file: io.BytesIO) -> object:
    """What a planner of one's own gave instead of the object. Read with ``weights_only``, so nothing in it is run."""
    file.seek(0)
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except (UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise UnsupportedLeaf(
            f"{name}: the planner gave bytes that are not plain values ({str(error).splitlines()[0]:.200})",
            hint="let resolve_data give a tensor, or what torch.save makes of plain values",
            path=name,
        ) from None
