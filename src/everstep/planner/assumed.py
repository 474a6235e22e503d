"""What a plan goes by, and where each figure is from: given, measured, or a default that is shown as one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from everstep.errors import UsageError
from everstep.units import parse_bytes, parse_seconds

__all__ = ["Assumed", "Assumptions", "Measured", "MeasuredRun"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """One figure: its name, what it is in the unit that its name says, and where it is from."""

    name: str
    value: float
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A figure that was measured, and where."""

    value: float
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """What a run shows, each None where it shows nothing.

    ``state`` in bytes, ``changed`` a share, ``stall`` and ``mtbf`` in seconds, ``bandwidth`` in bytes a second of all
    ranks together, ``slowdown`` and ``notice_chance`` shares.
    """

    state: Measured | None = None
    changed: Measured | None = None
    stall: Measured | None = None
    bandwidth: Measured | None = None
    slowdown: Measured | None = None
    mtbf: Measured | None = None
    notice_chance: Measured | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """How a figure is read: ``form`` is what it takes, ``read`` may raise ValueError."""

    form: str
    read: Callable[[str], float]


_BYTES = _Kind(form="a size such as 15GB, 256MiB or 268435456", read=parse_bytes)


class Assumptions:
    """Takes each figure from the first place that has it, and remembers from where."""

    def __init__(self) -> None:
        self._found: list[Assumed] = []

    @property
    def found(self) -> tuple[Assumed, ...]:
        """All figures so far."""
        return tuple(self._found)

    def seconds(
        self,
        name: str,
        given: str | None,
        measured: Measured | None,
        default: float | None,
        *,
        least: float = 0.0,
        most: float = 100 * 365 * 86400.0,
    ) -> float:
        """A duration. Raises `UsageError` naming the option and the form."""
        kind = _Kind(form="a duration such as 30s, 10m, 2h or 1h 30m", read=_seconds)
        return self._taken(name, kind, given, measured, default, least=least, most=most)

    def size(self, name: str, given: str | None, measured: Measured | None) -> int:
        """A number of bytes, at least 1."""
        return int(self._taken(name, _BYTES, given, measured, None, least=1, most=1e18))

    def rate(self, name: str, given: str | None, measured: Measured | None, default: float) -> float:
        """Bytes a second: ``1GB/s``."""
        kind = _Kind(form="bytes a second such as 1GB/s or 500MB/s", read=_rate)
        return self._taken(name, kind, given, measured, default, least=1e3, most=1e15)

    def share(
        self,
        name: str,
        given: str | None,
        measured: Measured | None,
        default: float,
        *,
        least: float = 0.0,
        most: float = 1.0,
    ) -> float:
        """A share: ``0.4`` or ``40%``."""
        kind = _Kind(
            form=f"a share from {least:g} to {most:g}, such as {most * 0.4:g} or {most * 0.4:.0%}",
            read=_share,
        )
        return self._taken(name, kind, given, measured, default, least=least, most=most)

    def number(
        self, name: str, given: float | None, default: float, *, least: float = 0.0, most: float = 1e6
    ) -> float:
        """A plain number."""
        kind = _Kind(form=f"a number from {least:g} to {most:g}", read=float)
        text = None if given is None else repr(given)
        return self._taken(name, kind, text, None, default, least=least, most=most)

    def _taken(
        self,
        name: str,
        kind: _Kind,
        given: str | None,
        measured: Measured | None,
        default: float | None,
        *,
        least: float,
        most: float,
    ) -> float:
        if given is not None:
            value, origin = checked(name, kind.read, given, kind.form, least=least, most=most), "given"
        elif measured is not None:
            value, origin = min(max(measured.value, least), most), f"measured: {measured.where}"
        elif default is not None:
            value, origin = default, "default"
        else:
            raise UsageError(
                f"nothing says --{name}", hint=f"give --{name} ({kind.form}), or a run that has it: --run RUN"
            )
        self._found.append(Assumed(name=name, value=value, origin=origin))
        return value


def checked(
    name: str, read: Callable[[str], float], text: str, form: str, *, least: float, most: float
) -> float:
    """The value of an option. Raises `UsageError` naming the option, what was given and the form."""
    try:
        value = float(read(text))
    except ValueError:
        raise UsageError(
            f"--{name} {text} cannot be read", hint=f"--{name} takes {form}", option=name
        ) from None
    if not (math.isfinite(value) and least <= value <= most):
        bounds = f"more than {most:g}" if value > most else f"less than {least:g}"
        raise UsageError(f"--{name} {text} is {bounds}", hint=f"--{name} takes {form}", option=name)
    return value


def _seconds(text: str) -> float:
    return 0.0 if text.strip() == "0" else parse_seconds(text)


def _rate(text: str) -> float:
    size, slash, second = text.strip().lower().rpartition("/")
    if slash and second.strip() in {"s", "sec", "second"}:
        return parse_bytes(size)
    raise ValueError("no rate")


def _share(text: str) -> float:
    number = text.strip()
    return float(number.removesuffix("%")) / 100 if number.endswith("%") else float(number)
