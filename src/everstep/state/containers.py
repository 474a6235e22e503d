"""Dicts, lists, tuples and their kin; dataclasses by field."""

from __future__ import annotations

import copy
import dataclasses
import enum
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Mapping, MutableMapping
from functools import partial
from typing import Any, Final

import numpy as np

from everstep.errors import RestoreError
from everstep.format.paths import join
from everstep.state.flattening import Flattening, refuse
from everstep.state.memory import MISSING, Later, Like
from everstep.state.plain_values import is_plain
from everstep.state.restoring import Restoring
from everstep.state.saved import Saved

__all__ = ["DataclassKind", "DictKind", "ListKind", "NamedTupleKind", "field_of", "only_values", "put"]

_DICTS: Final = {"dict": dict, "OrderedDict": OrderedDict, "defaultdict": defaultdict, "Counter": Counter}
_OPEN: Final = (defaultdict, Counter)
"""Dicts whose keys are data: those of the checkpoint take the place of the live ones."""
_OBJECTS: Final = frozenset({"object", "module", "optimizer", "rng", "generator", "per_rank"})
_KEYED: Final = frozenset({*_DICTS, *_OBJECTS, "dataclass", "namedtuple", "stage"})
_FACTORIES: Final[dict[str, Callable[[], Any]]] = {
    kind.__name__: kind for kind in (int, float, complex, str, bytes, list, dict, set, tuple, bool)
}


class DictKind:
    """Dicts, with plain keys of any type."""

    def claims(self, value: object) -> bool:
        """Whether it is one of the standard library's dicts."""
        return type(value) in _DICTS.values()

    def flatten(self, value: dict[Any, Any], path: str, into: Flattening) -> None:
        """Write the keys and what they hold."""
        name = ""
        if isinstance(value, defaultdict) and value.default_factory is not None:
            name = getattr(value.default_factory, "__name__", "")
        into.mapping(path, type(value).__name__, list(value.items()), name=name)

    def restore(self, live: dict[Any, Any], saved: Saved, into: Restoring) -> Later:
        """Put back what is in it, key by key; an empty dict takes whatever was saved."""
        entry = saved.container
        if entry is None or entry.type not in _KEYED:
            return into.problem(
                saved.path, f"is a {type(live).__name__} in the state and not in the checkpoint"
            )
        if type(live) in _OPEN or (not live and saved.path):
            return _refill(live, saved, into)
        keys = {join("", key): key for key in live}
        found = into.children({text: live[key] for text, key in keys.items()}, saved)

        def finish() -> Any:
            for text, later in found.items():
                put(live, keys[text], later(), saved.path)
            return live

        return finish

    def builds(self, saved: Saved) -> bool:
        """Whether it was saved with keys; objects come back as their state."""
        return saved.container is not None and saved.container.type in {*_DICTS, *_OBJECTS, "stage"}

    def build(self, saved: Saved, like: Like, into: Restoring) -> Later:
        """Make the dict anew."""
        entry = saved.container
        assert entry is not None, saved
        if entry.type in _OBJECTS and not into.free:
            return into.problem(
                saved.path, f"is the state of {entry.name or entry.type}, and the state has no such object"
            )
        found = {key: into.build(child, field_of(like, key)) for key, child in saved.pairs()}

        def finish() -> Any:
            made = _DICTS.get(entry.type, dict)()
            if isinstance(made, defaultdict):
                live = like()
                here = live.default_factory if isinstance(live, defaultdict) else None
                made.default_factory = here or _FACTORIES.get(entry.name)
            for key, later in found.items():
                made[key] = later()
            return made

        return finish


def _refill(live: dict[Any, Any], saved: Saved, into: Restoring) -> Later:
    found: dict[Any, Later] = {}
    for key, child in saved.pairs():
        here = live.get(key, MISSING)
        if not into.skips(child.path):
            found[key] = into.build(child) if here is MISSING else into.restore(here, child)
        elif here is MISSING:
            into.unplaced(child)
        else:
            into.left_out(child.path)
            found[key] = partial(live.get, key)

    def finish() -> Any:
        made = {key: later() for key, later in found.items()}
        live.clear()
        live.update(made)
        return live

    return finish


def put(live: Any, key: Any, value: Any, path: str) -> None:
    """Set an item of a live container, unless it is there. Raises `RestoreError` where that cannot be."""
    if live[key] is value:
        return
    if not isinstance(live, MutableMapping | list | deque):
        raise RestoreError(
            f"{join(path, key)} must be replaced, and {path or 'the state'} cannot be changed",
            hint="give the state as a dict",
            path=path,
        )
    live[key] = value


def field_of(like: Like, key: Any) -> Like:
    """The live value at a key, if it is there."""

    def found() -> Any:
        live = like()
        if isinstance(live, Mapping):
            return live.get(key, MISSING) if key in live else MISSING
        if dataclasses.is_dataclass(live) and isinstance(key, str):
            return getattr(live, key, MISSING)
        return MISSING

    return found


class ListKind:
    """Lists, tuples and deques that hold more than plain values."""

    def claims(self, value: object) -> bool:
        """Whether it is one of these."""
        return type(value) in (list, tuple, deque)

    def flatten(self, value: Any, path: str, into: Flattening) -> None:
        """Write the items."""
        name = "" if not isinstance(value, deque) or value.maxlen is None else str(value.maxlen)
        into.sequence(path, type(value).__name__, list(value), name=name)

    def restore(self, live: Any, saved: Saved, into: Restoring) -> Later:
        """Put back the items one by one; an empty list takes whatever was saved, a tuple is replaced."""
        entry = saved.container
        if entry is None or entry.type not in ("list", "tuple", "deque", "namedtuple", "torch_size"):
            return into.problem(
                saved.path, f"is a {type(live).__name__} in the state and not in the checkpoint"
            )
        if only_values(live) and not saved.has_arrays:
            later = into.build(saved, lambda: live)
            return lambda: _refilled(live, later())
        found = into.children({str(n): item for n, item in enumerate(live)}, saved)

        def finish() -> Any:
            items = [found[str(n)]() if str(n) in found else item for n, item in enumerate(live)]
            if isinstance(live, tuple):
                same = all(a is b for a, b in zip(items, live, strict=True))
                return live if same else tuple(items)
            for n, item in enumerate(items):
                live[n] = item
            return live

        return finish

    def builds(self, saved: Saved) -> bool:
        """Whether one of these was saved."""
        return saved.container is not None and saved.container.type in (
            "list",
            "tuple",
            "deque",
            "object_value",
        )

    def build(self, saved: Saved, like: Like, into: Restoring) -> Later:
        """Make the items anew."""
        entry = saved.container
        assert entry is not None, saved
        found = [into.build(child, _nth(like, n)) for n, (_, child) in enumerate(saved.pairs())]

        def finish() -> Any:
            items = [later() for later in found]
            if entry.type == "object_value":
                return items[0]
            if entry.type == "deque":
                return deque(items, maxlen=int(entry.name) if entry.name.isdecimal() else None)
            return items if entry.type == "list" else tuple(items)

        return finish


def only_values(value: object) -> bool:
    """Whether there is no array and no object in it, so that its length is part of what is saved."""
    if isinstance(value, Mapping):
        return all(map(only_values, value.values()))
    if isinstance(value, list | tuple | deque):
        return all(map(only_values, value))
    return is_plain(value) or isinstance(value, enum.Enum | np.generic | str | bytes | bytearray)


def _refilled(live: Any, made: Any) -> Any:
    if type(live) is not type(made) or not isinstance(live, list | deque):
        return made
    live.clear()
    live.extend(made)
    return live


def _nth(like: Like, n: int) -> Like:
    """The live item at an index; beyond the end the last one, to take its class from."""

    def found() -> Any:
        live = like()
        if isinstance(live, list | tuple | deque) and live:
            return live[min(n, len(live) - 1)]
        return MISSING

    return found


class NamedTupleKind:
    """Named tuples, by field; they are replaced whole when anything in them is."""

    def claims(self, value: object) -> bool:
        """Whether it is one."""
        return isinstance(value, tuple) and isinstance(getattr(type(value), "_fields", None), tuple)

    def flatten(self, value: Any, path: str, into: Flattening) -> None:
        """Write the fields."""
        into.mapping(path, "namedtuple", list(value._asdict().items()), name=_class_name(value))

    def restore(self, live: Any, saved: Saved, into: Restoring) -> Later:
        """Put back the fields one by one."""
        entry = saved.container
        if entry is None or entry.type not in _KEYED:
            return into.problem(saved.path, "is a named tuple in the state and not in the checkpoint")
        values = live._asdict()
        found = into.children({join("", name): value for name, value in values.items()}, saved)

        def finish() -> Any:
            made = {name: found[text]() for name in values if (text := join("", name)) in found}
            return live if all(made[name] is values[name] for name in made) else live._replace(**made)

        return finish

    def builds(self, saved: Saved) -> bool:
        """Whether one was saved."""
        return saved.container is not None and saved.container.type == "namedtuple"

    def build(self, saved: Saved, like: Like, into: Restoring) -> Later:
        """Make it of the live one's class, or of a new class with the same fields."""
        entry = saved.container
        assert entry is not None, saved
        live = like()
        found = {str(key): into.build(child, _field(live, key)) for key, child in saved.pairs()}
        if self.claims(live) and set(live._fields) == set(found):
            kind: Any = type(live)
        elif into.free:
            kind = namedtuple(_last(entry.name), list(found), rename=True)  # type: ignore[misc,no-redef]  # noqa: PYI024 - the fields are known only now
        else:
            return into.problem(
                saved.path, f"is a {entry.name}, and the state has none there to take the class from"
            )
        return lambda: kind(*(later() for later in found.values()))


def _field(live: Any, key: Any) -> Like:
    return lambda: getattr(live, key, MISSING) if isinstance(key, str) else MISSING


def _last(name: str) -> str:
    last = name.rpartition(".")[2]
    return last if last.isidentifier() else "Fields"


class DataclassKind:
    """Dataclass instances, by field; a frozen one is replaced by a changed copy.

    Fields marked as static for jax (``pytree_node=False`` in flax, ``static=True``) belong to the program,
    not to the state: they are left as they are.
    """

    def claims(self, value: object) -> bool:
        """Whether it is one."""
        return dataclasses.is_dataclass(value) and not isinstance(value, type)

    def flatten(self, value: Any, path: str, into: Flattening) -> None:
        """Write the fields."""
        unset = [name for name in _fields(value) if not hasattr(value, name)]
        if unset:
            refuse(path, value, f"its field {unset[0]} is not set")
        items = [(name, getattr(value, name)) for name in _fields(value)]
        into.mapping(path, "dataclass", items, name=_class_name(value))

    def restore(self, live: Any, saved: Saved, into: Restoring) -> Later:
        """Put back the fields one by one."""
        entry = saved.container
        if entry is None or entry.type not in _KEYED:
            return into.problem(saved.path, "is a dataclass in the state and not in the checkpoint")
        names = {join("", name): name for name in _fields(live)}
        found = into.children({text: getattr(live, name) for text, name in names.items()}, saved)
        return lambda: _changed(live, {names[text]: later() for text, later in found.items()})

    def builds(self, saved: Saved) -> bool:
        """Whether one was saved."""
        return saved.container is not None and saved.container.type == "dataclass"

    def build(self, saved: Saved, like: Like, into: Restoring) -> Later:
        """Make a copy of the live one with the saved fields; without a live one, a dict."""
        entry = saved.container
        assert entry is not None, saved
        live = like()
        fits = self.claims(live) and set(_fields(live)) == {key for key, _ in saved.pairs()}
        if not fits and not into.free:
            return into.problem(
                saved.path, f"is a {entry.name}, and the state has none there to take the class from"
            )
        found = {key: into.build(child, _field(live, key)) for key, child in saved.pairs()}

        def finish() -> Any:
            values = {key: later() for key, later in found.items()}
            if not fits:
                return values
            made = copy.copy(live)
            for name, value in values.items():
                object.__setattr__(made, name, value)
            return made

        return finish


def _fields(value: Any) -> list[str]:
    return [
        field.name
        for field in dataclasses.fields(value)
        if field.metadata.get("pytree_node", True) and not field.metadata.get("static", False)
    ]


def _changed(live: Any, values: Mapping[str, Any]) -> Any:
    changed = {name: value for name, value in values.items() if getattr(live, name) is not value}
    if not changed:
        return live
    frozen = type(live).__dataclass_params__.frozen
    made = copy.copy(live) if frozen else live
    for name, value in changed.items():
        if frozen:
            object.__setattr__(made, name, value)
        else:
            setattr(made, name, value)
    return made


def _class_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
