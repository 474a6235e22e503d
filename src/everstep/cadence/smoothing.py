"""What a save costs at present, from the last measurements: one slow save must not throw it about."""

from __future__ import annotations

from collections import deque
from statistics import fmean, median

__all__ = ["Smoothed"]

_WINDOW = 15
_CLIP = 2.0
_SHIFT, _SHIFT_BY = 3, 2.0


class Smoothed:
    """The mean of the last seven values, each counted as at most twice their median.

    One outlier among seven moves it by at most a seventh. When three values in a row are all more than twice what it
    was, or less than half, things have changed: older values are forgotten.
    """

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=_WINDOW)

    def add(self, value: float) -> None:
        """One more measurement, not negative."""
        self._values.append(value)
        values = list(self._values)
        before, last = values[:-_SHIFT], values[-_SHIFT:]
        if before and (
            min(last) > _SHIFT_BY * _clipped_mean(before) or max(last) * _SHIFT_BY < _clipped_mean(before)
        ):
            self._values = deque(last, maxlen=_WINDOW)

    @property
    def value(self) -> float:
        """The estimate; 0 before the first value."""
        return _clipped_mean(self._values) if self._values else 0.0

    def share_below(self, bound: float) -> float:
        """The share of the last values that are at most ``bound``; 0 before the first."""
        return fmean(value <= bound for value in self._values) if self._values else 0.0

    def __len__(self) -> int:
        return len(self._values)


def _clipped_mean(values: deque[float] | list[float]) -> float:
    most = _CLIP * median(values)
    return fmean(min(value, most) for value in values)
