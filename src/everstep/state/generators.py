"""Random generators: Python's, NumPy's and torch's own."""

from __future__ import annotations

import random
import sys
from typing import Any, Final

import numpy as np

from everstep.errors import RestoreError
from everstep.state.flattening import Flattening
from everstep.state.memory import MISSING, Later, type_name
from everstep.state.restoring import Restoring
from everstep.state.saved import Saved

__all__ = ["GeneratorKind", "generator_state", "give_generator", "is_generator", "set_generator_state"]

_WORDS: Final = 625


class GeneratorKind:
    """A generator object; its stream goes on where the saved one stood."""

    def claims(self, value: object) -> bool:
        """Whether it is a generator."""
        return is_generator(value)

    def flatten(self, value: Any, path: str, into: Flattening) -> None:
        """Write where the stream stands."""
        into.not_in_a_state(value, path)
        into.mapping(path, "generator", [("state", generator_state(value))], name=type_name(value))

    def restore(self, live: Any, saved: Saved, into: Restoring) -> Later:
        """Set the live generator."""
        entry = saved.container
        child = saved.child("state")
        if entry is None or entry.type != "generator" or child is None:
            return into.problem(saved.path, "is a random generator in the state and none in the checkpoint")
        if entry.name != type_name(live):
            return into.problem(
                saved.path, f"is a {type_name(live)} in the state and a {entry.name} in the checkpoint"
            )
        later = into.build(child, lambda: MISSING)

        def finish() -> Any:
            give_generator(live, {"state": later()}, saved.path)
            return live

        return finish


def give_generator(live: Any, given: Any, path: str) -> None:
    """Have a live generator go on where a loaded one, ``{"state": ...}``, stood. Raises `RestoreError`."""
    try:
        set_generator_state(live, given["state"])
    except (TypeError, ValueError, KeyError, RuntimeError) as error:
        raise RestoreError(
            f"{path} is a {type_name(live)} that does not take the saved state: {error!r}", path=path
        ) from error


def is_generator(value: object) -> bool:
    """Whether a value is a generator of Python, NumPy or torch."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Generator):
        return True
    return isinstance(
        value, random.Random | np.random.Generator | np.random.RandomState | np.random.BitGenerator
    )


def generator_state(value: Any) -> Any:
    """Where a generator's stream stands, as arrays and plain values."""
    if isinstance(value, random.Random):
        return python_state(value.getstate())
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    if isinstance(value, np.random.RandomState):
        return value.get_state(legacy=False)
    if isinstance(value, np.random.BitGenerator):
        return value.state
    return value.get_state()


def set_generator_state(value: Any, state: Any) -> None:
    """Have a generator go on from a state."""
    if isinstance(value, random.Random):
        value.setstate(python_tuple(state))
    elif isinstance(value, np.random.Generator):
        value.bit_generator.state = state
    elif isinstance(value, np.random.BitGenerator):
        value.state = state
    else:
        value.set_state(state)


def python_state(state: tuple[Any, ...]) -> dict[str, Any]:
    """What ``random.getstate`` gives, its 625 words as one array."""
    version, words, gauss = state
    return {"version": version, "words": np.array(words, np.uint32), "gauss": gauss}


def python_tuple(state: Any) -> tuple[Any, ...]:
    """The inverse of `python_state`."""
    words = tuple(int(word) for word in state["words"])
    if len(words) != _WORDS:
        raise ValueError(f"{len(words)} words where {_WORDS} belong")
    return (state["version"], words, state["gauss"])
