"""A checkpoint as one torch file of plain containers and tensors, which loads with ``weights_only=True``."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from everstep.errors import UsageError
from everstep.format.dtypes import ITEM_BYTES
from everstep.format.entries import Alias, Container, Entry, Tensor
from everstep.format.paths import components, join, parent
from everstep.integrations.chosen import prefix_of
from everstep.integrations.exported import Exported
from everstep.integrations.files import Temporaries
from everstep.state.conversion import assemble
from everstep.state.named_states import by_name, by_position, is_by_name, is_whole, names_of
from everstep.transfer.contents import Contents
from everstep.transfer.select import selects

__all__ = ["export_torch"]

_PLAIN: Final = (type(None), bool, int, float, complex, str, bytes, bytearray)
_LEFT_OUT: Final = object()


def export_torch(
    contents: Contents,
    out: Path,
    *,
    select: Sequence[str] = (),
    skip: Sequence[str] = (),
    force: bool = False,
) -> Exported:
    """Write the selected leaves to ``out`` in their nesting.

    When the one pattern is a container's path, the file holds that container: a model's state dict.
    Named tuples become tuples, other dicts become dict, sets and queues become set and list, NumPy arrays
    become tensors. Leaves that ``weights_only`` refuses are left out: of a dict with their key, in a list or
    tuple as None. Raises `UsageError` without torch, for a file that exists (without ``force``), and when
    nothing is selected.
    """
    try:
        import torch  # noqa: PLC0415 - an extra
    except ImportError:
        raise UsageError(
            "--format torch needs torch", hint="install everstep[torch], or use safetensors"
        ) from None
    with Temporaries([out], force=force) as temporaries:
        value, left_out = _read(contents, select, skip)
        torch.save(value, temporaries[out])
    kept = _chosen(contents.entries, select, skip) - set(left_out)
    tensors = [entry for path in kept if isinstance(entry := contents.entries[path], Tensor)]
    return Exported(
        files=(out,),
        tensors=sum(isinstance(contents.entries[path], Tensor | Alias) for path in kept),
        bytes=sum(math.prod(entry.shape) * ITEM_BYTES[entry.dtype] for entry in tensors),
        left_out=tuple(left_out),
    )


def _read(contents: Contents, select: Sequence[str], skip: Sequence[str]) -> tuple[Any, list[str]]:
    """The plain value that torch can write, and the paths left out of it."""
    entries = contents.entries
    chosen = _chosen(entries, select, skip)
    if not chosen:
        raise UsageError("nothing is selected", hint="see the paths with everstep show --all")
    needed = chosen | {entry.of for path in chosen if isinstance(entry := entries[path], Alias)}
    restoration = assemble(contents.manifest.entries)
    contents.check_readable(needed)
    contents.fetch([wanted for wanted in restoration.wanted if wanted.path in needed])
    value = restoration.finish()
    prefix = prefix_of(entries, select).rstrip("/")
    held = {above for path in chosen for above in _line_of(path)}
    plain = _Plain(entries=entries, held=held)
    above = ""
    for component in components(prefix):
        value = _child(value, component, entries.get(above))
        above = f"{above}/{component}" if above else component
    return plain.of(value, prefix), plain.left_out


def _chosen(entries: Mapping[str, Entry], select: Sequence[str], skip: Sequence[str]) -> set[str]:
    """The paths of all entries that are meant, containers among them, with all that they lie in."""
    return {path for path in entries if selects(select, path) and not (skip and selects(skip, path))}


def _line_of(path: str) -> Iterator[str]:
    """The path and all above it, the root included."""
    yield path
    while path:
        path = parent(path)
        yield path


def _child(value: Any, component: str, entry: Entry | None) -> Any:
    """What lies under a component of the path of an entry."""
    if is_by_name(entry):
        value = _by_name(value)
    if isinstance(value, Mapping):
        return next(item for key, item in value.items() if join("", key) == component)
    return value[int(component)]


@dataclass(slots=True, kw_only=True)
class _Plain:
    """Makes plain values of what lies at paths; notes what has no plain form.

    ``held`` are the chosen paths and all above them.
    """

    entries: Mapping[str, Entry]
    held: set[str]
    left_out: list[str] = field(default_factory=list)

    def of(self, value: Any, path: str) -> Any:
        """The plain form, or `_LEFT_OUT`."""
        if isinstance(self.entries.get(path), Container):
            if isinstance(value, Mapping) and is_by_name(self.entries[path]):
                named = self._mapping(_by_name(value), path)
                return by_position(named) if is_whole(named) else named
            if isinstance(value, Mapping):
                return self._mapping(value, path)
            if isinstance(value, list | tuple | deque):
                items = [self._item(item, join(path, n)) for n, item in enumerate(value)]
                return tuple(items) if isinstance(value, tuple) else items
        plain = _leaf(value)
        if plain is _LEFT_OUT:
            self.left_out.append(path)
        return plain

    def _mapping(self, value: Mapping[Any, Any], path: str) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        for key, item in value.items():
            below = join(path, key)
            if below not in self.held:
                continue
            plain_key, plain = _leaf(key), self.of(item, below)
            if plain_key is _LEFT_OUT:
                self.left_out.append(below)
            elif plain is not _LEFT_OUT:
                made[plain_key] = plain
        return made

    def _item(self, item: Any, path: str) -> Any:
        plain = self.of(item, path) if path in self.held else None
        return None if plain is _LEFT_OUT else plain


def _by_name(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """An optimizer's state by the names that its paths have."""
    return state if "members" in state else by_name(state, names_of(state)) or state


def _leaf(value: Any) -> Any:
    """A leaf as ``weights_only`` takes it, or `_LEFT_OUT`."""
    import torch  # noqa: PLC0415 - as above

    if type(value) in _PLAIN or isinstance(value, torch.Tensor | torch.Size | torch.dtype | torch.device):
        return value
    if isinstance(value, Mapping):
        pairs = [(_leaf(key), _leaf(item)) for key, item in value.items()]
        return _whole(dict(pairs), [part for pair in pairs for part in pair])
    if isinstance(value, tuple | list | set | frozenset):
        items = [_leaf(item) for item in value]
        kind = next(kind for kind in (tuple, list, set, frozenset) if isinstance(value, kind))
        return _whole((set if kind is frozenset else kind)(items), items)
    if isinstance(value, np.ndarray | np.generic):
        native = value.astype(value.dtype.newbyteorder("="), copy=False)  # torch knows no other byte order
        try:
            return torch.from_numpy(np.ascontiguousarray(native)).reshape(value.shape)
        except TypeError:
            return _LEFT_OUT
    return _LEFT_OUT


def _whole(made: Any, parts: Sequence[Any]) -> Any:
    """What was made, unless one of its parts had to be left out."""
    return _LEFT_OUT if any(part is _LEFT_OUT for part in parts) else made
