"""How files and folders are opened: never through a symbolic link, never handed to child processes.

Elsewhere than on POSIX a flag is 0, so that clouds can be used there; `LocalStore` itself refuses.
"""

from __future__ import annotations

import os

__all__ = ["FOLDER", "NEW_FILE", "NO_LINK", "READ_FILE", "WRITE_DIRECT"]

_CLOEXEC: int = getattr(os, "O_CLOEXEC", 0)
_DIRECT: int = getattr(os, "O_DIRECT", 0)

NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)

FOLDER: int = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _CLOEXEC
"""A folder. With `NO_LINK` for all but the root."""

READ_FILE: int = os.O_RDONLY | NO_LINK | _CLOEXEC | getattr(os, "O_NONBLOCK", 0)
"""A file to read; what turns out to be a pipe does not block."""

NEW_FILE: int = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK | _CLOEXEC

WRITE_DIRECT: int = (os.O_WRONLY | _DIRECT | NO_LINK | _CLOEXEC) if _DIRECT else 0
"""A file to write past the page cache; 0 where the system has no such way."""
