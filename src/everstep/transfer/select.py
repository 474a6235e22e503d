"""Which leaves a user means by patterns."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

__all__ = ["selects"]


def selects(patterns: Sequence[str], path: str) -> bool:
    """Whether a path is meant: no pattern means all; a path means itself and all beneath it.

    A pattern with ``*``, ``?`` or ``[`` is matched against the whole path; ``*`` matches ``/`` too.
    """
    return not patterns or any(
        path == pattern.rstrip("/")
        or path.startswith(f"{pattern.rstrip('/')}/")
        or fnmatch.fnmatchcase(path, pattern)
        for pattern in patterns
    )
