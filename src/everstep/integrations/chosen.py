"""Which tensors leave a checkpoint, and under which names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from everstep.errors import UsageError
from everstep.format.entries import Container, Entry
from everstep.format.paths import components, unescape
from everstep.state.saved import Place, tree
from everstep.transfer.select import selects

__all__ = ["Chosen", "choose", "prefix_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """By name in the file: where its bytes lie. ``left_out`` are paths of plain values."""

    tensors: Mapping[str, Place]
    left_out: tuple[str, ...]


def choose(
    entries: Mapping[str, Entry], *, select: Sequence[str], skip: Sequence[str], slashes: bool
) -> Chosen:
    """The tensors meant by the patterns, named for other tools.

    When the one pattern is a container's path, names begin below it: ``select=["model"]`` gives the names
    of the model's own state dict. Components are joined by dots, with ``slashes`` by ``/``. Raises
    `UsageError` when nothing is meant, or two tensors would have one name.
    """
    prefix = prefix_of(entries, select)
    saved = tree(tuple(entries.values())).everything
    tensors: dict[str, Place] = {}
    paths: dict[str, str] = {}
    left_out: list[str] = []
    for path, entry in entries.items():
        if isinstance(entry, Container) or not selects(select, path) or (skip and selects(skip, path)):
            continue
        if not saved[path].array:
            left_out.append(path)
            continue
        name = _name(path[len(prefix) :], slashes=slashes)
        if name in tensors:
            raise UsageError(
                f"{paths[name]} and {path} would both be named {name}",
                hint="use --names slash, or select less",
                name=name,
            )
        tensors[name], paths[name] = saved[path].place(), path
    if not tensors:
        raise UsageError(
            "no tensor is selected",
            hint=f"the state begins with: {', '.join(_tops(entries)) or 'nothing'}; see everstep show",
        )
    return Chosen(tensors=tensors, left_out=tuple(left_out))


def prefix_of(entries: Mapping[str, Entry], select: Sequence[str]) -> str:
    """What names do not repeat: the selected container's path and a slash, else nothing."""
    if len(select) == 1 and isinstance(entries.get(select[0].rstrip("/")), Container):
        return f"{select[0].rstrip('/')}/"
    return ""


def _name(path: str, *, slashes: bool) -> str:
    return ("/" if slashes else ".").join(unescape(component) for component in components(path))


def _tops(entries: Mapping[str, Entry]) -> list[str]:
    return [path for path in entries if path and "/" not in path][:20]
