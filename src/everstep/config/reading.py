"""From flags, variables and files to the settings in force. The only reader of the environment in the package."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TypeVar

from everstep.config.schema import (
    AzureSettings,
    GcsSettings,
    ProcessSettings,
    S3Settings,
    Settings,
    StoreSettings,
)
from everstep.config.values import secret
from everstep.errors import UsageError

__all__ = ["child_environment", "no_color", "process_settings", "settings"]

T = TypeVar("T")


def settings(
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
    **flags: object,
) -> Settings:
    """The settings in force: ``flags`` (None: not given), then variables, the project's and the user's file.

    ``folder`` is where ``everstep.toml`` or ``pyproject.toml`` is looked for, by default the working folder.
    Raises `UsageError` naming the file or variable, the key and the allowed form.
    """
    variables = os.environ if environ is None else environ
    tables = list(_tables(variables, Path() if folder is None else folder))
    stores = {
        "azure": _filled(AzureSettings, {}, variables, tables, "azure"),
        "s3": _filled(S3Settings, {}, variables, tables, "s3"),
        "gcs": _filled(GcsSettings, {}, variables, tables, "gcs"),
        "proxies": tuple(sorted(name for name in variables if name.upper() in _PROXIES and variables[name])),
    }
    wrong = sorted(set(flags) - {one.name for one in fields(Settings)})
    if wrong:
        raise UsageError(f"there is no setting {wrong[0]!r}", hint=_known(Settings), key=wrong[0])
    given = {name: value for name, value in flags.items() if value is not None}
    given["stores"] = _filled(StoreSettings, stores, variables, tables, "stores")
    return _filled(Settings, given, variables, tables, "")


def process_settings(environ: Mapping[str, str] | None = None) -> ProcessSettings:
    """What the launcher of this process told it, in ``EVERSTEP_*`` and in torchrun's, Slurm's and Open MPI's variables.

    Raises `UsageError` naming the variable and the allowed form.
    """
    variables = os.environ if environ is None else environ
    given: dict[str, object] = {}
    if variables.get("EVERSTEP_PROGRESS"):
        given["progress"] = Path(variables["EVERSTEP_PROGRESS"])
    told = _filled(ProcessSettings, given, variables, [], "")
    if told.rank is not None and told.world_size is not None and told.rank >= told.world_size:
        raise UsageError(
            f"RANK={told.rank} is not below WORLD_SIZE={told.world_size}",
            hint="let the launcher set both, or neither",
        )
    return told


def no_color(environ: Mapping[str, str] | None = None) -> bool:
    """Whether the user asked for no colour, by the NO_COLOR convention or a dumb terminal."""
    variables = os.environ if environ is None else environ
    return bool(variables.get("NO_COLOR")) or variables.get("TERM") == "dumb"


def child_environment(changes: Mapping[str, str], environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a child process is started with: this process's own environment, and ``changes``."""
    return {**(os.environ if environ is None else environ), **changes}


_PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"})
_SECTIONS = frozenset({"azure", "s3", "gcs", "stores"})
_Table = tuple[str, Mapping[str, object], bool]
"""A file's name, its table, and whether it is the user's own, where secrets may stand."""


def _tables(variables: Mapping[str, str], folder: Path) -> Iterable[_Table]:
    own = folder / "everstep.toml"
    project = folder / "pyproject.toml"
    if own.is_file():
        yield str(own), _read(own), False
    elif project.is_file():
        tool = _read(project).get("tool", {})
        table = tool.get("everstep", {}) if isinstance(tool, Mapping) else {}
        if not isinstance(table, Mapping):
            raise _wrong(str(project), "tool.everstep", "a table")
        yield f"{project} [tool.everstep]", table, False
    base = variables.get("XDG_CONFIG_HOME") or (variables.get("HOME", "") and f"{variables['HOME']}/.config")
    user = Path(base) / "everstep" / "config.toml" if base else None
    if user and user.is_file():
        yield str(user), _read(user), True


def _read(path: Path) -> Mapping[str, object]:
    import tomllib  # noqa: PLC0415  # most working folders have no file of ours: start without the parser

    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}", hint="correct the file", file=str(path)) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint="correct its permissions") from None


def _filled(
    kind: type[T],
    given: Mapping[str, object],
    variables: Mapping[str, str],
    tables: Iterable[_Table],
    section: str,
) -> T:
    """One dataclass of settings, each field from the first place that has it."""
    reads = {one.name: one.metadata["read"] for one in fields(kind) if "read" in one.metadata}  # type: ignore[arg-type]
    found = {
        name: (where, path, value)
        for table in reversed(list(tables))
        for name, where, path, value in _entries(kind, table, section)
    }
    for one in fields(kind):  # type: ignore[arg-type]
        named = [name for name in one.metadata.get("variables", ()) if variables.get(name)]
        if named:
            found[one.name] = (named[0], "", variables[named[0]])
    found |= {name: (f"{name}=", "", value) for name, value in given.items()}
    values: dict[str, object] = {}
    for name, (where, path, value) in found.items():
        try:
            values[name] = reads[name](value) if name in reads else value
        except ValueError as error:
            raise _wrong(where, path, str(error)) from None
    if any(one.name == "sources" for one in fields(kind)):  # type: ignore[arg-type]
        values["sources"] = {name: where for name, (where, _, _) in found.items()}
    return kind(**values)


def _entries(kind: type[object], table: _Table, section: str) -> Iterable[tuple[str, str, str, object]]:
    """Each entry of a file's table: name, file, dotted path, value; unknown names and misplaced secrets refused."""
    where, whole, private = table
    entries = whole.get(section, {}) if section else whole
    if not isinstance(entries, Mapping):
        raise _wrong(where, section, "a table")
    known = {one.name: one.metadata for one in fields(kind) if "read" in one.metadata}  # type: ignore[arg-type]
    for key, value in entries.items():
        path = f"{section}.{key}" if section else key
        if not section and key in _SECTIONS:
            continue
        if key not in known:
            raise UsageError(
                f"{where}: there is no setting {path!r}", hint=_known(kind), file=where, key=path
            )
        if known[key]["read"] is secret and not private:
            raise UsageError(
                f"{where}: {path!r} is a secret, and this file is shared",
                hint=f"set {known[key]['variables'][0]}, or put it into the user's config.toml",
                file=where,
                key=path,
            )
        yield key, where, path, value


def _known(kind: type[object]) -> str:
    names = sorted(one.name for one in fields(kind) if "read" in one.metadata)  # type: ignore[arg-type]
    return f"known settings: {', '.join(names)}"


def _wrong(where: str, key: str, allowed: str) -> UsageError:
    """The value itself is not repeated: it may be a secret in the wrong place."""
    named = f"{where}: {key}" if key else where
    return UsageError(
        f"{named} has a value that cannot be used", hint=f"it takes {allowed}", file=where, key=key
    )
