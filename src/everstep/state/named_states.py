"""An optimizer's state by the names of its parameters, and as torch has it: by their positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from everstep.format.entries import Container, Entry
from everstep.format.values import decode
from everstep.state.memory import Later, Like
from everstep.state.restoring import Restoring
from everstep.state.saved import Saved

__all__ = ["NamedStateBuilder", "by_name", "by_position", "is_by_name", "is_whole", "names_of"]

_KEYS: Final = {"state", "param_groups", "members"}


def by_name(state: Any, names: Sequence[str]) -> dict[str, Any] | None:
    """A torch state dict by name: ``state``, ``param_groups`` without parameters, each one's group as ``members``.

    ``members`` is in the order of positions. None when the state dict is not what torch makes it.
    """
    if not isinstance(state, dict) or state.keys() != {"state", "param_groups"}:
        return None
    groups, per_parameter = state["param_groups"], state["state"]
    numbers = [number for group in groups for number in group["params"]]
    if numbers != list(range(len(names))) or not set(per_parameter) <= set(numbers):
        return None
    return {
        "state": {names[n]: per_parameter[n] for n in numbers if n in per_parameter},
        "param_groups": [
            {key: value for key, value in group.items() if key not in ("params", "param_names")}
            for group in groups
        ],
        "members": {names[n]: number for number, group in enumerate(groups) for n in group["params"]},
    }


def by_position(state: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `by_name`; the groups have the names as ``param_names``."""
    members: Mapping[str, int] = state["members"]
    names = sorted(members, key=lambda name: members[name])
    numbers = {name: n for n, name in enumerate(names)}
    groups = []
    for number, group in enumerate(state["param_groups"]):
        own = [name for name in names if members[name] == number]
        groups.append({**group, "params": [numbers[name] for name in own], "param_names": own})
    return {
        "state": {numbers[name]: value for name, value in state["state"].items() if name in numbers},
        "param_groups": groups,
    }


def names_of(state: Mapping[str, Any]) -> list[str]:
    """The names in what `by_position` made, in the order of positions."""
    return [name for group in state["param_groups"] for name in group["param_names"]]


def is_by_name(entry: Entry | None) -> bool:
    """Whether a container is an optimizer's state by name, of one rank or of stages."""
    return (
        isinstance(entry, Container)
        and entry.type in ("optimizer", "stage")
        and entry.keys is not None
        and len(entry.keys) == len(_KEYS)
        and {key for key in map(decode, entry.keys) if isinstance(key, str)} == _KEYS
    )


def is_whole(state: Mapping[str, Any]) -> bool:
    """Whether it has all that `by_name` makes; a checkpoint is not trusted to."""
    groups, members = state.get("param_groups"), state.get("members")
    return (
        isinstance(state.get("state"), dict)
        and isinstance(members, dict)
        and all(type(number) is int for number in members.values())
        and isinstance(groups, list)
        and all(isinstance(group, dict) for group in groups)
    )


class NamedStateBuilder:
    """Makes the state dict that torch's ``load_state_dict`` takes."""

    def builds(self, saved: Saved) -> bool:
        """Whether it was saved by name."""
        return is_by_name(saved.container)

    def build(self, saved: Saved, like: Like, into: Restoring) -> Later:
        """Make all of it anew."""
        del like
        if not into.free:
            return into.problem(saved.path, "is the state of an optimizer, and the state has no such object")
        found = {key: into.build(child) for key, child in saved.pairs()}

        def finish() -> Any:
            made = {key: later() for key, later in found.items()}
            return by_position(made) if is_whole(made) else made

        return finish
