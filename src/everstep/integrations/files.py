"""Files of the user's that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from everstep.errors import UsageError

__all__ = ["Temporaries"]


class Temporaries:
    """A temporary file beside each target; leaving the block well makes them durable and renames them, in order.

    Leaving it with an error removes them. Raises `UsageError` when a target exists, without ``force``.
    """

    def __init__(self, targets: Sequence[Path], *, force: bool) -> None:
        self._force = force
        self._temporary = {
            target: target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial") for target in targets
        }

    def __enter__(self) -> Self:
        self._check()
        for target in self._temporary:
            target.parent.mkdir(parents=True, exist_ok=True)
        return self

    def __getitem__(self, target: Path) -> Path:
        """The temporary file of a target."""
        return self._temporary[target]

    def __contains__(self, target: Path) -> bool:
        return target in self._temporary

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._publish()
        finally:
            for temporary in self._temporary.values():
                temporary.unlink(missing_ok=True)

    def _check(self) -> None:
        for target in self._temporary:
            if target.is_dir() or (not self._force and os.path.lexists(target)):
                raise UsageError(
                    f"{target} exists", hint="name another file, or give --force", path=str(target)
                )

    def _publish(self) -> None:
        for temporary in self._temporary.values():
            _sync(temporary)
        self._check()
        for target, temporary in self._temporary.items():
            temporary.replace(target)
        for folder in {target.parent for target in self._temporary}:
            _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
