"""The names of an optimizer's parameters: those that the modules in the same state have for them."""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from everstep.format.paths import components, join
from everstep.state.modules import bare, clean
from everstep.state.per_rank import PerRank
from everstep.state.stage import Stage

__all__ = ["Naming", "Parameters"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """One name for each parameter, by its position over all groups: what is saved, and other names to look for.

    All are unique in themselves.
    """

    saved: tuple[str, ...]
    others: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class _Name:
    """A parameter's name in its module, the module's path, and how much of it is below a `Stage`."""

    name: str
    path: str = ""
    below: str = ""

    @property
    def full(self) -> str:
        return f"{self.path}.{self.name}" if self.path else self.name

    def below_last(self, count: int) -> str:
        """With so many of the path's last components."""
        above = "/".join(components(self.path)[-count:]) if count else ""
        return f"{above}.{self.name}" if above else self.name

    @property
    def part(self) -> str:
        return f"{self.below}.{self.name}" if self.below else self.name


class Parameters:
    """The parameters of all modules in a state, wherever they stand in it."""

    def __init__(self, root: object) -> None:
        self._names: dict[int, _Name] = {}
        for path, below, module in _modules(root):
            for name, parameter in bare(module).named_parameters():
                self._names.setdefault(id(parameter), _Name(clean(name), path, below))

    def naming(self, optimizer: torch.optim.Optimizer) -> Naming | None:
        """The names of an optimizer's parameters; None when one has none that is known."""
        names = self._names_of(optimizer)
        if names is None:
            return None
        twice = {name for name, count in Counter(name.part for name in names).items() if count > 1}
        chosen = tuple(name.full if name.part in twice else name.part for name in names)
        if not _unique(chosen):
            return None
        deepest = max((len(components(name.path)) for name in names), default=0)
        ways = [tuple(name.below_last(n) for name in names) for n in range(deepest + 1)]
        ways.append(_own(optimizer))
        return Naming(
            saved=chosen,
            others=tuple(way for way in dict.fromkeys(ways) if way and way != chosen and _unique(way)),
        )

    def _names_of(self, optimizer: torch.optim.Optimizer) -> list[_Name] | None:
        """By module, or by the optimizer's own word where no module has the parameter."""
        found: list[_Name] = []
        for group in optimizer.param_groups:
            given = group.get("param_names")
            for n, parameter in enumerate(group["params"]):
                name = self._names.get(id(parameter))
                if name is None and given is not None:
                    name = _Name(clean(given[n]))
                if name is None:
                    return None
                found.append(name)
        return found


def _own(optimizer: torch.optim.Optimizer) -> tuple[str, ...]:
    """The names that the optimizer was given with its parameters, if it was given any."""
    if not all("param_names" in group for group in optimizer.param_groups):
        return ()
    return tuple(clean(name) for group in optimizer.param_groups for name in group["param_names"])


def _unique(names: tuple[str, ...]) -> bool:
    return len(set(names)) == len(names)


def _modules(
    value: Any, path: str = "", stage: int | None = None, above: frozenset[int] = frozenset()
) -> Iterator[tuple[str, str, torch.nn.Module]]:
    """The modules, their paths, and what of these is below a `Stage`, whose path has ``stage`` characters."""
    if isinstance(value, torch.nn.Module):
        yield path, "" if stage is None else path[stage:].removeprefix("/"), value
        return
    if isinstance(value, PerRank | Stage):
        stage = len(path) if isinstance(value, Stage) else stage
        yield from _modules(value.value, path, stage, above)
        return
    if id(value) in above:
        return
    above = above | {id(value)}
    for key, child in _children(value):
        yield from _modules(child, join(path, key), stage, above)


def _children(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, list | tuple | deque):
        return enumerate(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value)]
    return ()
