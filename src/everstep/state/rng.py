"""The random streams of a whole process."""

from __future__ import annotations

import importlib
import importlib.util
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from everstep.errors import RestoreError, UsageError
from everstep.format.paths import join
from everstep.state.flattening import Flattening
from everstep.state.generators import GeneratorKind, give_generator, is_generator, python_state, python_tuple
from everstep.state.memory import MISSING, Later, type_name
from everstep.state.restoring import Restoring
from everstep.state.saved import Saved

__all__ = ["RNG", "RNGKind", "set_streams"]

_STREAMS: Final = ("python", "numpy", "torch", "cuda")


@dataclass(frozen=True, slots=True, kw_only=True)
class RNG:
    """The process's random generators: Python's ``random``, NumPy's global one, torch's on CPU and on every GPU.

    They are read when a save begins and set by a restore, so that each stream goes on where it stood. torch is
    read only where the program uses it. ``generators`` are further ones by name: ``torch.Generator``,
    ``np.random.Generator``, ``random.Random``.
    """

    python: bool = True
    numpy: bool = True
    torch: bool = True
    cuda: bool = True
    generators: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what is no generator."""
        for name, generator in self.generators.items():
            if not is_generator(generator):
                raise UsageError(
                    f"generators[{name!r}] is of type {type_name(generator)}, which is no random generator",
                    hint="give a torch.Generator, np.random.Generator or random.Random; a jax key is plain state",
                )


class RNGKind:
    """The streams, each under its name."""

    def claims(self, value: object) -> bool:
        """Whether it is an `RNG`."""
        return isinstance(value, RNG)

    def flatten(self, value: RNG, path: str, into: Flattening) -> None:
        """Write where the streams stand."""
        into.not_in_a_state(value, path)
        items = [(name, _read(name)) for name in _STREAMS if getattr(value, name) and _in_use(name)]
        if value.generators:
            items.append(("generators", dict(value.generators)))
        into.mapping(path, "rng", items)

    def restore(self, live: RNG, saved: Saved, into: Restoring) -> Later:
        """Set the streams; one that is saved and not asked for, or cannot be set here, is a problem."""
        entry = saved.container
        if entry is None or entry.type != "rng":
            return into.problem(saved.path, "is an RNG in the state and not in the checkpoint")
        laters: dict[str, Later] = {}
        for name, child in saved.children.items():
            if name == "generators":
                self._named(live, child, into, laters)
            elif name not in _STREAMS or not getattr(live, name):
                into.unplaced(child)
            elif into.skips(child.path):
                into.left_out(child.path)
            else:
                laters[name] = _stream(name, child, into)
        for name in live.generators if "generators" not in saved.children else ():
            into.absent(join(join(saved.path, "generators"), name))

        def finish() -> RNG:
            for name, later in laters.items():
                state = later()
                if name in _STREAMS:
                    _set(name, state, saved.path)
            return live

        return finish

    def _named(self, live: RNG, saved: Saved, into: Restoring, laters: dict[str, Later]) -> None:
        kind = GeneratorKind()
        found = into.children(
            {join("", name): generator for name, generator in live.generators.items()},
            saved,
            lambda _text, generator, child: kind.restore(generator, child, into),
        )
        laters.update({f"generators/{text}": later for text, later in found.items()})


def set_streams(live: RNG, given: Any, path: str) -> None:
    """Set the streams that a loaded `RNG` has, of those that the live one asks for. Raises `RestoreError`."""
    if not isinstance(given, Mapping):
        raise RestoreError(f"{path} is an RNG and was given a {type_name(given)}", path=path)
    for name in _STREAMS:
        if name in given and getattr(live, name):
            _set(name, given[name], path)
    for name, state in dict(given.get("generators", {})).items():
        if name in live.generators:
            give_generator(live.generators[name], state, join(join(path, "generators"), name))


def _in_use(name: str) -> bool:
    """Whether this process has such a stream: torch where it is imported, CUDA where it is started."""
    if name in ("python", "numpy"):
        return True
    torch = sys.modules.get("torch")
    return torch is not None and (
        name == "torch" or bool(torch.cuda.is_available() and torch.cuda.is_initialized())
    )


def _read(name: str) -> Any:
    if name == "python":
        return python_state(random.getstate())
    if name == "numpy":
        return np.random.get_state(legacy=False)  # noqa: NPY002 - the global stream is what many programs draw from
    torch: Any = sys.modules["torch"]
    return torch.get_rng_state() if name == "torch" else torch.cuda.get_rng_state_all()


def _stream(name: str, saved: Saved, into: Restoring) -> Later:
    wrong = _cannot(name, saved)
    return into.problem(saved.path, wrong) if wrong else into.build(saved, lambda: MISSING)


def _cannot(name: str, saved: Saved) -> str:
    """Why a saved stream cannot be set in this process."""
    if name in ("python", "numpy"):
        return ""
    if importlib.util.find_spec("torch") is None:
        return f"is the random state of {name}, and torch is not installed"
    if name == "cuda":
        devices = importlib.import_module("torch").cuda.device_count()
        if devices != len(saved.children):
            return f"has the random states of {len(saved.children)} CUDA devices, and here are {devices}"
    return ""


def _set(name: str, state: Any, path: str) -> None:
    try:
        if name == "python":
            random.setstate(python_tuple(state))
        elif name == "numpy":
            np.random.set_state(state)  # noqa: NPY002 - as above
        elif name == "torch":
            importlib.import_module("torch").set_rng_state(state)
        else:
            importlib.import_module("torch").cuda.set_rng_state_all(state)
    except (TypeError, ValueError, KeyError, RuntimeError) as error:
        raise RestoreError(
            f"{join(path, name)} is no random state of {name}: {error}", path=join(path, name)
        ) from error
