"""What a model is and how to build it again: a record of plain values, never code."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from everstep.errors import EverstepError, UsageError
from everstep.format.values import EnumValue, decode, encode
from everstep.state.code_version import code_version, package_versions
from everstep.state.memory import type_name
from everstep.state.parameters import give_weights, parameter_table, refuse_other_table, totals

__all__ = ["Architecture", "rebuild_model"]

Factory = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """How a model is built, what parameters it has, and by which code; made by `of`.

    ``factory`` is the importable name ``package.module:name``; ``args`` and ``kwargs`` are its arguments.
    ``description`` is a framework's own, plain one: a configuration, a JSON text.
    """

    class_name: str
    factory: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    description: Mapping[str, Any] | None
    parameters: Sequence[Mapping[str, Any]]
    code: Mapping[str, Any] | None
    packages: Mapping[str, str]

    @classmethod
    def of(
        cls,
        model: object,
        *,
        factory: str | Factory | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        description: Mapping[str, Any] | None = None,
    ) -> Architecture:
        """The architecture of a live model.

        ``factory`` is a function or class at the top of a module that can be imported, or its name
        ``"package.module:name"``; by default the model's class. Arguments are plain values. A
        ``description`` without arguments is handed to the factory as its one argument.
        Raises `UsageError` when the factory cannot be named or an argument is not plain.
        """
        bare = _bare(model)
        if factory is None:
            name = "" if description is not None else factory_name(type(bare))
        else:
            name = factory if isinstance(factory, str) else factory_name(factory)
        build = find_factory(name) if name else None
        given = dict(kwargs or {})
        for what, value in (("args", list(args)), ("kwargs", given), ("description", description)):
            _check_plain(what, value)
        kind = type(bare)
        return cls(
            class_name=type_name(bare),
            factory=name,
            args=tuple(args),
            kwargs=given,
            description=description,
            parameters=parameter_table(bare),
            code=code_version(kind, build),
            packages=package_versions(kind),
        )

    def record(self) -> dict[str, Any]:
        """All of it as JSON-able data, for the checkpoint."""
        return {
            "class": self.class_name,
            "factory": self.factory,
            "args": encode(list(self.args)),
            "kwargs": {name: encode(value) for name, value in self.kwargs.items()},
            "description": None if self.description is None else encode(dict(self.description)),
            "parameters": [dict(row) for row in self.parameters],
            "totals": totals(self.parameters),
            "code": None if self.code is None else dict(self.code),
            "packages": dict(self.packages),
        }


def rebuild_model(
    record: Mapping[str, Any],
    *,
    state: object = None,
    factory: str | Factory | None = None,
    at: str | None = None,
) -> Any:
    """The model of a record, with weights when ``state`` is given: a state that `assemble` made.

    Imports and calls the recorded factory, or ``factory``, with the recorded arguments, or with a framework's
    description as its one argument where there are none. ``at`` is the path of the model's part in the state,
    needed where several parts have its parameters' names. Raises `UsageError` when it cannot be built,
    `RestoreMismatch` when the built model has other parameters.
    """
    chosen = factory or record.get("factory") or ""
    if not chosen:
        raise UsageError(
            f"the record of {record.get('class')} names no factory, only a description",
            hint="pass factory=, a function that builds the model from the description",
        )
    build = find_factory(chosen) if isinstance(chosen, str) else chosen
    given = record.get("args") or record.get("kwargs")
    if record.get("description") is not None and not given:
        model = _call(build, (decode(record["description"]),), {})
    else:
        kwargs = {name: decode(value) for name, value in record.get("kwargs", {}).items()}
        model = _call(build, tuple(decode(record.get("args", []))), kwargs)
    refuse_other_table(record.get("parameters", ()), parameter_table(_bare(model)))
    if state is not None:
        give_weights(_bare(model), state, record.get("parameters", ()), at)
    return model


def factory_name(factory: Factory) -> str:
    """The name by which a function or class can be imported. Raises `UsageError` when there is none."""
    module = getattr(factory, "__module__", None)
    name = getattr(factory, "__qualname__", None)
    if module == "__main__":
        spec = sys.modules["__main__"].__spec__
        module = spec.name if spec is not None else module
    if not module or not name or "<" in name or module == "__main__":
        where = "the script that is run" if module == "__main__" else "a place that cannot be imported"
        raise UsageError(
            f"the factory {name or factory!r} is in {where}",
            hint="define it at the top of a module and pass it, or its name 'package.module:name'",
        )
    return f"{module}:{name}"


def find_factory(name: str) -> Factory:
    """Import the function or class of this name. Raises `UsageError`."""
    module, colon, path = name.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module.split("."), *path.split("."))):
        raise UsageError(
            f"{name!r} is no name of a factory", hint="write 'package.module:name'", factory=name
        )
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"the factory {name} cannot be imported: {error}",
            hint="run where the model's code can be imported, or pass factory=",
            factory=name,
        ) from error
    if not callable(found):
        raise UsageError(f"{name} is not a function or class", factory=name)
    return cast("Factory", found)


def _call(build: Factory, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return build(*args, **kwargs)
    except EverstepError:
        raise
    except Exception as error:
        raise UsageError(
            f"the factory {getattr(build, '__qualname__', build)!r} failed: {error!r}",
            hint="the record's arguments are those given to Architecture.of; pass factory= to build otherwise",
        ) from error


def _bare(model: object) -> object:
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        return model
    return importlib.import_module("everstep.state.modules").bare(model)


def _check_plain(what: str, value: object) -> None:
    try:
        encode(value)
    except TypeError as error:
        raise UsageError(
            f"the model's {what} cannot be recorded: {error}", hint="give plain values"
        ) from error
    if _has_enum(decode(encode(value))):
        raise UsageError(
            f"the model's {what} hold an enum", hint="give its value; the factory can look it up"
        )


def _has_enum(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_enum, (*value, *value.values())))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_has_enum, value))
    return isinstance(value, EnumValue)
