"""The files below a folder, in the order of their keys."""

from __future__ import annotations

import os
from collections.abc import Iterator

from everstep.store.flags import FOLDER, NO_LINK
from everstep.store.keys import RESERVED
from everstep.store.protocol import Listed

__all__ = ["walk"]


def walk(folder: int, path: str, prefix: str, after: str) -> Iterator[Listed]:
    """Each file below the open directory ``folder``, which is closed in the end. ``path`` is its key and a slash.

    Sorted as whole keys are, so that ``a.b`` comes before ``a/b``: a folder sorts with its slash. Symbolic
    links and other things that are no files are passed over, and so is what vanishes meanwhile. A folder
    is read whole when it is entered, its files are looked at one by one, as they are asked for.
    """
    try:
        for name in sorted(_names(folder)):
            key = path + name
            if name.endswith("/"):
                inner = _entered(folder, name) if _may_hold(key, prefix, after) else None
                if inner is not None:
                    yield from walk(inner, key, prefix, after)
            elif key.startswith(prefix) and key > after:
                found = _looked_at(folder, name)
                if found is not None:
                    yield Listed(key=key, size=found.st_size, modified=found.st_mtime)
    finally:
        os.close(folder)


def _entered(folder: int, name: str) -> int | None:
    try:
        return os.open(name, FOLDER | NO_LINK, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _looked_at(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _names(folder: int) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name != RESERVED:
                    yield f"{entry.name}/"
            elif entry.is_file(follow_symlinks=False):
                yield entry.name


def _may_hold(folder: str, prefix: str, after: str) -> bool:
    """Whether a key that begins with ``folder`` can begin with ``prefix`` and be greater than ``after``."""
    wanted = folder.startswith(prefix) or prefix.startswith(folder)
    return wanted and (folder > after or after.startswith(folder))
