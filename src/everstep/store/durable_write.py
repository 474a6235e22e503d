"""Bytes into a new file, on the disk itself when it returns."""

from __future__ import annotations

import errno
import os
import sys

from everstep.store.calls import Calls

__all__ = ["sync", "write_new"]

_BLOCK = 8 << 20
"""Bytes per direct write: from 4 to 16 MiB a disk is as fast as it gets, with the least processor time."""

_DIRECT_FROM = 1 << 20
"""Smaller bodies are not worth a second way."""

_ALIGN = 4096
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_DIRECT: int = getattr(os, "O_DIRECT", 0)


def write_new(calls: Calls, folder: int, name: str, body: memoryview) -> None:
    """Make the file ``name`` in the open directory ``folder``, and sync its bytes (not its name).

    Large bodies in page-aligned memory go past the page cache: as fast, for a fifth of the processor
    time, and without pushing out what the training reads. Raises `OSError`; the file may then exist.
    """
    fd = calls.open(name, _CREATE, 0o666, dir_fd=folder)
    try:
        done = _write_direct(calls, folder, name, body) if _DIRECT and len(body) >= _DIRECT_FROM else 0
        while done < len(body):
            done += calls.pwrite(fd, body[done : done + _BLOCK], done)
        sync(calls, fd)
    finally:
        calls.close(fd)


def sync(calls: Calls, fd: int) -> None:
    """Return when the disk itself has what was written to ``fd``, a file or a directory."""
    if sys.platform == "darwin":
        import fcntl  # noqa: PLC0415  # only there: macOS's fsync stops at the drive's own cache

        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        calls.fsync(fd)


def _write_direct(calls: Calls, folder: int, name: str, body: memoryview) -> int:
    """Write the aligned part of ``body`` directly; how many bytes are written, the rest is the caller's.

    Whether the memory, the length and the file system allow it, only the kernel knows: it says EINVAL.
    """
    try:
        fd = calls.open(name, os.O_WRONLY | _DIRECT | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ENOTSUP}:
            return 0
        raise
    done = 0
    end = len(body) - len(body) % _ALIGN
    try:
        while done < end:
            done += calls.pwrite(fd, body[done : min(done + _BLOCK, end)], done)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        calls.close(fd)
    return done
