"""What a save costs at present, from the last measurements: one slow save must not throw it about."""

from __future__ import annotations

from collections import deque
from statistics import fmean, median

__all__ = ["Smoothed"]

_WINDOW = 15
_CLIP = 2.0
_SHIFT, _SHIFT_BY = 3, 2.0


class Smoothed:
    """The mean of the last fifteen values, each counted as at most twice their median.

    One outlier among fifteen moves it by at most a fifteenth. When three values in a row are all more than twice what
    it was and above all older ones but one (or less than half of it, and below all but one), things have changed:
    older values are forgotten.
    """

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=_WINDOW)

    def add(self, value: float) -> None:
        """One more measurement; a difference of measurements may be below 0."""
        self._values.append(value)
        values = list(self._values)
        if _changed(values[:-_SHIFT], values[-_SHIFT:]):
            self._values = deque(values[-_SHIFT:], maxlen=_WINDOW)

    @property
    def value(self) -> float:
        """The estimate; 0 before the first value."""
        return _clipped_mean(self._values) if self._values else 0.0

    def share_below(self, bound: float) -> float:
        """The share of the last values that are at most ``bound``; 0 before the first."""
        return fmean(value <= bound for value in self._values) if self._values else 0.0

    def __len__(self) -> int:
        return len(self._values)


def _changed(before: list[float], last: list[float]) -> bool:
    if not before or (was := _clipped_mean(before)) <= 0:
        return False
    low, high = sorted(before)[min(1, len(before) - 1)], sorted(before)[max(-2, -len(before))]
    return min(last) > max(_SHIFT_BY * was, high) or max(last) < min(was / _SHIFT_BY, low)


def _clipped_mean(values: deque[float] | list[float]) -> float:
    most = max(0.0, _CLIP * median(values))
    return fmean(min(value, most) for value in values)
