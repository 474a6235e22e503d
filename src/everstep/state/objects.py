"""Objects that give their state and take it back: schedulers, scalers, loaders, and anybody's own."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol, runtime_checkable

from everstep.errors import EverstepError, RestoreError, UnsupportedLeaf
from everstep.state.containers import field_of
from everstep.state.flattening import Flattening
from everstep.state.loaders import loader_problem
from everstep.state.memory import Later, type_name
from everstep.state.restoring import Restoring
from everstep.state.saved import Saved

__all__ = ["ObjectKind", "Stateful", "build_state", "hand_over", "take_state"]


@runtime_checkable
class Stateful(Protocol):
    """Anything with ``state_dict`` and ``load_state_dict``."""

    def state_dict(self) -> Any:
        """Its state."""
        ...

    def load_state_dict(self, state_dict: Any, /) -> Any:
        """Take a state that ``state_dict`` gave."""
        ...


class ObjectKind:
    """Objects with ``state_dict`` and ``load_state_dict``: their state is theirs, and handed back whole."""

    def claims(self, value: object) -> bool:
        """Whether it has both."""
        return isinstance(value, Stateful) and not isinstance(value, type)

    def flatten(self, value: Stateful, path: str, into: Flattening) -> None:
        """Write what ``state_dict`` gives."""
        state = take_state(value, path)
        with into.state_of(value, path):
            if type(state) in (dict, OrderedDict):
                into.mapping(path, "object", list(state.items()), name=type_name(value))
            else:
                into.sequence(path, "object_value", [state], name=type_name(value))

    def restore(self, live: Stateful, saved: Saved, into: Restoring) -> Later:
        """Hand the saved state to ``load_state_dict``, in memory of its own."""
        entry = saved.container
        if entry is None:
            return into.problem(
                saved.path, f"is a {type_name(live)} in the state and plain in the checkpoint"
            )
        wrong = loader_problem(live, saved)
        if wrong:
            return into.problem(saved.path, wrong)
        later = build_state(saved, cache(lambda: take_state(live, saved.path)), into)

        def finish() -> Stateful:
            hand_over(live, later(), saved.path)
            return live

        return finish


def take_state(live: Stateful, path: str) -> Any:
    """What ``state_dict`` gives. Raises `UnsupportedLeaf` when it fails."""
    try:
        return live.state_dict()
    except EverstepError:
        raise
    except Exception as error:
        raise UnsupportedLeaf(
            f"{path} is of type {type_name(live)}, whose state_dict() failed: {error!r}",
            path=path,
            type=type_name(live),
        ) from error


def hand_over(live: Any, state: Any, path: str) -> None:
    """Call ``load_state_dict``. Raises `RestoreError` when it fails."""
    try:
        live.load_state_dict(state)
    except EverstepError:
        raise
    except Exception as error:
        raise RestoreError(
            f"{path} is of type {type_name(live)}, whose load_state_dict() failed: {error!r}",
            hint="the object in the state is built otherwise than the one that was saved",
            path=path,
            type=type_name(live),
        ) from error


def build_state(saved: Saved, like: Callable[[], Any], into: Restoring) -> Later:
    """The whole state of an object, made anew; leaving a part of it out is a problem."""
    for path in saved.leaves():
        if into.skips(path):
            return into.problem(
                path, f"is a part of the state of {saved.path}, which is restored whole or skipped whole"
            )
    entry = saved.container
    assert entry is not None, saved
    if entry.type == "object_value":
        child = next(iter(saved.children.values()))
        return into.build(child, like)
    found = {key: into.build(child, field_of(like, key)) for key, child in saved.pairs()}
    return lambda: {key: later() for key, later in found.items()}
