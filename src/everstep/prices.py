"""What object storage costs: a dated table of list prices, and prices of your own in its place."""

from __future__ import annotations

import datetime as dt
import difflib
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from everstep.errors import UsageError

__all__ = ["BILLED_GB", "MONTH_S", "Prices", "Rehydration", "known", "load", "overridden", "prices"]

BILLED_GB = 2**30
"""The bytes that Azure, Amazon and Google bill as one gigabyte."""

MONTH_S = 730 * 3600.0
"""The seconds of a month, as the clouds count it."""

_AMOUNTS = ("gb_month", "write_1k", "read_1k", "list_1k", "read_gb", "egress_gb", "minimum_days")
_WORDS = ("provider", "region", "source")
_REQUIRED = ("gb_month",)
_FORM = (
    f"an entry has {', '.join(_AMOUNTS)} as numbers from 0 on, {', '.join(_WORDS)} as texts, as_of as a date"
)
_ABSURD = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehydration:
    """One way to make an archived object readable.

    ``hours`` is the longest that is announced; ``gb`` is paid per gigabyte, ``objects_1k`` per 1,000 objects.
    """

    name: str
    hours: float
    gb: float
    objects_1k: float

    def cost(self, count: int, objects: int) -> float:
        """Dollars for ``count`` bytes in so many ``objects``."""
        return count / BILLED_GB * self.gb + objects / 1000 * self.objects_1k


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What one place and tier costs, in US dollars, as of a day.

    ``gb_month`` is per gigabyte (`BILLED_GB` bytes) and month; ``write_1k``, ``read_1k`` and ``list_1k`` per 1,000
    requests; ``read_gb`` per gigabyte read in the same region, ``egress_gb`` from outside. What is deleted before
    ``minimum_days`` is billed until then. ``archive`` has the ways to read again, the ordinary one first; empty
    where objects are readable at once. ``from_memory`` names the figures that no dated source confirmed.
    """

    name: str
    as_of: dt.date
    source: str
    gb_month: float
    provider: str = ""
    region: str = ""
    write_1k: float = 0.0
    read_1k: float = 0.0
    list_1k: float = 0.0
    read_gb: float = 0.0
    egress_gb: float = 0.0
    minimum_days: float = 0.0
    archive: tuple[Rehydration, ...] = ()
    from_memory: tuple[str, ...] = ()


def prices(name: str) -> Prices:
    """The list prices of that name. Raises `UsageError` with the names there are."""
    table = _table()
    if name not in table:
        near = difflib.get_close_matches(name.lower(), table, n=2)
        meant = f"did you mean {' or '.join(near)}? " if near else ""
        raise UsageError(
            f"there are no prices of the name {name!r}",
            hint=f"{meant}known: {', '.join(table)}; or name a TOML file of your own (--prices ./prices.toml)",
            prices=name,
        )
    return table[name]


def known() -> tuple[str, ...]:
    """The names that `prices` knows."""
    return tuple(_table())


def load(path: Path) -> Prices:
    """Prices of your own: a TOML file with the fields of `Prices`, on top of ``base = "azure-hot"`` if it has one.

    Raises `UsageError` naming the file, the key and the form.
    """
    try:
        entry = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}", hint="correct the file", file=str(path)) from None
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", hint="name a TOML file with prices", file=str(path)
        ) from None
    base = entry.pop("base", None)
    return _made(path.stem, entry, where=str(path), base=prices(str(base)) if base is not None else None)


def overridden(before: Prices, changes: Iterable[str]) -> Prices:
    """The prices with ``KEY=VALUE`` changes, such as ``gb_month=0.02``. Raises `UsageError` naming the form."""
    amounts: dict[str, Any] = {}
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals or key.strip() not in _AMOUNTS:
            raise UsageError(
                f"--price {change} names no price",
                hint=f"write KEY=VALUE, as in gb_month=0.02; the keys are {', '.join(_AMOUNTS)}",
                price=change,
            )
        amounts[key.strip()] = _amount(f"--price {change}", key.strip(), text.strip())
    if not amounts:
        return before
    left = tuple(name for name in before.from_memory if name not in amounts)
    source = f"{before.source}; changed by the user: {', '.join(sorted(amounts))}"
    return replace(before, source=source, from_memory=left, **amounts)


@cache
def _table() -> Mapping[str, Prices]:
    text = resources.files("everstep").joinpath("prices.toml").read_text("utf-8")
    return {name: _made(name, entry, where="prices.toml") for name, entry in tomllib.loads(text).items()}


def _made(name: str, entry: Mapping[str, object], *, where: str, base: Prices | None = None) -> Prices:
    allowed = {*_AMOUNTS, *_WORDS, "as_of", "rehydration", "from_memory"}
    unknown = sorted(set(entry) - allowed)
    if unknown:
        near = difflib.get_close_matches(unknown[0], allowed, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise UsageError(
            f"{where}: {unknown[0]!r} is no field of prices", hint=meant + _FORM, file=where, key=unknown[0]
        )
    values: dict[str, object] = (
        {} if base is None else {one.name: getattr(base, one.name) for one in fields(base)}
    )
    values["name"] = name
    values |= {key: _amount(where, key, entry[key]) for key in _AMOUNTS if key in entry}
    values |= {key: _words(where, key, entry[key]) for key in _WORDS if key in entry}
    if "source" not in entry and base is not None:
        values["source"] = f"{where}, on top of {base.name}: {base.source}"
    values.setdefault("source", where)
    missing = [key for key in _REQUIRED if key not in values]
    if missing:
        raise UsageError(f"{where} has no {missing[0]}", hint=_FORM, file=where, key=missing[0])
    values["as_of"] = _day(where, entry.get("as_of", values.get("as_of", dt.date.min)))
    ways = entry.get("rehydration")
    if ways is not None:
        values["archive"] = tuple(_rehydration(where, way) for way in _list(where, "rehydration", ways))
    told = entry.get("from_memory", [name for name in values.get("from_memory", ()) if name not in entry])  # type: ignore[attr-defined]
    values["from_memory"] = tuple(
        _words(where, "from_memory", one) for one in _list(where, "from_memory", told)
    )
    return Prices(**values)  # type: ignore[arg-type] # each value was checked above


def _rehydration(where: str, way: object) -> Rehydration:
    if not isinstance(way, Mapping) or set(way) != {"name", "hours", "gb", "objects_1k"}:
        raise UsageError(
            f"{where}: a rehydration lacks a field, or has one too many",
            hint="it has name, hours, gb and objects_1k",
            file=where,
            key="rehydration",
        )
    return Rehydration(
        name=_words(where, "rehydration.name", way["name"]),
        hours=_amount(where, "rehydration.hours", way["hours"]),
        gb=_amount(where, "rehydration.gb", way["gb"]),
        objects_1k=_amount(where, "rehydration.objects_1k", way["objects_1k"]),
    )


def _amount(where: str, key: str, value: object) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = None
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        number = float(value)
        if 0 <= number <= _ABSURD:
            return number
    raise UsageError(
        f"{where}: {key} is no price",
        hint=f"{key} is a number of {'days' if key == 'minimum_days' else 'US dollars'} from 0 on, such as 0.02",
        key=key,
    )


def _words(where: str, key: str, value: object) -> str:
    if isinstance(value, str) and value and value.isprintable():
        return value
    raise UsageError(f"{where}: {key} is no text", hint=_FORM, file=where, key=key)


def _list(where: str, key: str, value: object) -> list[object]:
    if isinstance(value, list | tuple):
        return list(value)
    raise UsageError(f"{where}: {key} is no list", hint=_FORM, file=where, key=key)


def _day(where: str, value: object) -> dt.date:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    raise UsageError(
        f"{where}: as_of is no date",
        hint="write it as TOML has it: as_of = 2026-09-01",
        file=where,
        key="as_of",
    )
