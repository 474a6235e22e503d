"""Writes docs/reference.md from the docstrings of the public names: ``make reference``."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import everstep
from everstep import cadence, errors, retention

PAGE = Path(__file__).with_name("reference.md")
WIDE = 90
HEAD = """\
# Reference

`import everstep as es` gives these names. Made from the docstrings by `make reference`; do not edit.
"""


ROOMS = (
    (
        "Cadences, for `every=`",
        cadence,
        ("EverySteps", "EverySeconds", "At", "Before", "AnyOf", "Auto", "Never"),
    ),
    (
        "Retention rules, for `keep=`",
        retention,
        (
            "KeepLast", "KeepEvery", "KeepBest", "KeepWithin",
            "KeepHourly", "KeepDaily", "KeepWeekly", "KeepMonthly",
            "KeepTagged", "KeepVerified", "AtMostBytes", "AtMostMoney",
        ),
    ),
)  # fmt: skip


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for name in sorted(everstep.__all__, key=str.lower):
        value = getattr(everstep, name)
        if inspect.isclass(value) and issubclass(value, BaseException):
            continue  # below, in the tree
        parts.extend(described(name, value))
    for words_, module, names in ROOMS:
        parts.append(f"## {words_}\n\n`from {module.__name__} import {', '.join(names)}`\n")
        for name in names:
            parts.extend(f"#{part}" for part in described(name, getattr(module, name), short=True))
    parts.extend(error_table())
    return "\n".join(parts)


def described(name: str, value: object, *, short: bool = False) -> Iterator[str]:
    """A class with its public attributes and methods (``short``: without them), or a function."""
    if not inspect.isclass(value):
        yield f"## `{name}`\n\n```text\n{name}{signature(value)}\n```\n\n{words(value)}"
        return
    yield f"## `{name}`\n\n```text\n{name}{signature(value, bound=True)}\n```\n\n{words(value)}"
    for each, raw in sorted(vars(value).items()):
        if short or each.startswith("_"):
            continue
        if isinstance(raw, property):
            yield f"### `{name}.{each}`\n\n{words(raw.fget)}"
        elif callable(raw) or isinstance(raw, classmethod | staticmethod):
            bound = not isinstance(raw, staticmethod)
            plain = getattr(raw, "__func__", raw)
            yield f"### `{name}.{each}`\n\n```text\n{each}{signature(plain, bound=bound)}\n```\n\n{words(plain)}"


def signature(value: object, *, bound: bool = False) -> str:
    """The parameters, one a line when they are many; ``bound`` leaves out the object itself."""
    function = value.__init__ if inspect.isclass(value) else value
    if not callable(function) or function is object.__init__:
        return "()"
    found = inspect.signature(function)
    spoken = []
    for each in list(found.parameters.values())[1 if bound else 0 :]:
        if each.kind is each.KEYWORD_ONLY and "*" not in spoken:
            spoken.append("*")
        spoken.append(_spoken(each))
    end = ""
    if not inspect.isclass(value) and found.return_annotation is not found.empty:
        end = f" -> {_plain(found.return_annotation)}"
    line = f"({', '.join(spoken)}){end}"
    if len(line) <= WIDE:
        return line
    return "(\n" + "".join(f"    {each},\n" for each in spoken) + f"){end}"


def words(value: object) -> str:
    """The docstring, with this page's marks for code."""
    found = inspect.getdoc(value)
    return (found or "").replace("``", "`") + "\n"


def error_table() -> Iterator[str]:
    """Every error: where it stands in the tree, its code, the command line's exit code."""
    yield "## Errors\n\nThe hint of an error says what to do next. All are importable from `everstep.errors`.\n"
    rows = ["| error | code | exit code | may work later | means |", "|---|---|---|---|---|"]

    def walk(kind: type[errors.EverstepError], depth: int) -> None:
        first = (inspect.getdoc(kind) or "").splitlines()[0]
        later = "yes" if kind.retryable else ""
        rows.append(
            f"| {'· ' * depth}`{kind.__name__}` | {kind.code} | {kind.exit_code} | {later} | {first} |"
        )
        for each in kind.__subclasses__():
            if each.__module__ == errors.__name__:
                walk(each, depth + 1)

    walk(errors.EverstepError, 0)
    yield "\n".join(rows) + "\n"


def _plain(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _spoken(parameter: inspect.Parameter) -> str:
    marks = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
    text = marks.get(parameter.kind, "") + parameter.name
    if parameter.annotation is not parameter.empty:
        text += f": {_plain(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        default = parameter.default
        shown = f"{default.__module__}.{default.__name__}" if inspect.isfunction(default) else repr(default)
        text += f" = {shown}"
    return text


if __name__ == "__main__":
    PAGE.write_text(page())
