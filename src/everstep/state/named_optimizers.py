"""The state of an optimizer by the names of its parameters goes to the positions that they have here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import torch

from everstep.format.paths import join, parent
from everstep.format.values import decode
from everstep.state.containers import field_of
from everstep.state.memory import Later
from everstep.state.parameter_names import Naming
from everstep.state.restoring import Restoring
from everstep.state.saved import Saved
from everstep.state.state_tensors import InPlace

__all__ = ["restore_named"]


def restore_named(
    live: torch.optim.Optimizer, state: Any, naming: Naming | None, saved: Saved, into: Restoring
) -> Later:
    """The state dict for ``load_state_dict`` of the live optimizer, whose own is ``state``, from one by name."""
    members = _members(saved)
    groups, per_parameter = saved.child("param_groups"), saved.child("state")
    here = state.get("param_groups") if isinstance(state, dict) else None
    if members is None or groups is None or per_parameter is None or not isinstance(here, list):
        return into.problem(saved.path, "has no state by parameter that this version can read")
    count = _length(groups)
    if count != len(here):
        return into.problem(
            saved.path, f"has {len(here)} parameter groups in the state and {count} in the checkpoint"
        )
    membership = [n for n, group in enumerate(here) for _ in group["params"]]
    names = _by_name(naming, members) if naming else _by_order(saved, members, membership, into)
    if names is None or _differ(live, dict(zip(names, membership, strict=True)), members, saved, into):
        return lambda: None
    parameters = chain.from_iterable(group["params"] for group in live.param_groups)
    texts = [join("", name) for name in names]
    reuse = InPlace(per_parameter.path, dict(zip(texts, parameters, strict=True)))
    with into.reusing(reuse):
        found = {
            n: into.build(child, field_of(lambda: state["state"], n))
            for n, text in enumerate(texts)
            if (child := per_parameter.children.get(text)) is not None
        }
        options = into.build(groups, lambda: here)
    for text in texts:
        into.restored(f"{saved.path}/members/{text}")

    def finish() -> dict[str, Any]:
        return {
            "state": {n: later() for n, later in found.items()},
            "param_groups": [
                {**group, "params": own["params"]} for group, own in zip(options(), here, strict=True)
            ],
        }

    return finish


def _members(saved: Saved) -> dict[str, int] | None:
    """The saved parameters' groups, by name, in the order in which they were saved."""
    members = saved.child("members")
    if members is None or members.container is None:
        return None
    found = {key: decode(child.value.value) for key, child in members.pairs() if child.value is not None}
    return found if len(found) == len(members.children) else None


def _length(groups: Saved) -> int:
    if groups.value is None:
        return len(groups.children)
    stored = decode(groups.value.value)
    return len(stored) if isinstance(stored, list) else -1


def _by_name(naming: Naming, members: Mapping[str, int]) -> Sequence[str]:
    """The names by which all parameters are found, if there are such."""
    ways = (naming.saved, *naming.others)
    return next((way for way in ways if all(name in members for name in way)), naming.saved)


def _by_order(
    saved: Saved, members: Mapping[str, int], membership: Sequence[int], into: Restoring
) -> Sequence[str] | None:
    """The saved names in the order of positions, for a live optimizer whose parameters have none that is known."""
    was = sorted(members.values())
    unknown = "has parameters in the state whose names are not known"
    if into.partial or _united(saved):
        into.problem(saved.path, f"{unknown}; put the module that has them into the state")
        return None
    if was != membership:
        sizes = [[numbers.count(n) for n in sorted(set(numbers))] for numbers in (membership, was)]
        into.problem(
            saved.path,
            f"{unknown}, in groups of sizes {sizes[0]}; the checkpoint has groups of sizes {sizes[1]}",
        )
        return None
    return sorted(members, key=lambda name: members[name])


def _united(saved: Saved) -> bool:
    """Whether several ranks' parts may have been put together."""
    path = saved.path
    while path:
        entry = saved.everything[path].container
        if entry is not None and entry.type == "stage":
            return True
        path = parent(path)
    return False


def _differ(
    live: torch.optim.Optimizer,
    here: Mapping[str, int],
    members: Mapping[str, int],
    saved: Saved,
    into: Restoring,
) -> bool:
    """Whether other parameters, or in other groups, were saved; these are then problems."""
    wrong = [
        f"has the parameter {name} in the state and not in the checkpoint"
        for name in here
        if name not in members
    ]
    if not into.partial:
        wrong += [
            f"has the parameter {name} in the checkpoint and not in the state"
            for name in members
            if name not in here
        ]
    wrong += [
        f"has the parameter {name} in group {group} in the state and {members[name]} in the checkpoint"
        for name, group in here.items()
        if members.get(name, group) != group
    ]
    if not wrong and isinstance(live, torch.optim.LBFGS) and list(here) != list(members):
        wrong.append(
            "is an LBFGS, whose state is of all parameters in order, and the checkpoint has another order"
        )
    for path in saved.leaves():
        if into.skips(path):
            into.problem(
                path, f"is a part of the state of {saved.path}, which is restored whole or skipped whole"
            )
            return True
    for what in wrong:
        into.problem(saved.path, what)
    return bool(wrong)
