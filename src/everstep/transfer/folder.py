"""A folder in memory that the ranks of one node share for a while: files by name, and who is still there."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["Folder", "make_folder", "open_folder", "room_in"]

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - memory that processes share; a folder of one's own is made in it
_PREFIX: Final = "everstep-node-"
_FLAGS: Final = os.O_NOFOLLOW | os.O_CLOEXEC


class Folder:
    """An open folder of this user's that nobody else can look into, and this rank's presence in it.

    All names are plain ones, in the folder itself; links are never followed. A rank is there as long as it
    holds the lock on its file ``alive.<rank>``, which the system lets go when the process dies. Raises
    ``OSError``: those who call it then do without.
    """

    def __init__(self, path: Path, rank: int) -> None:
        self.path = path
        self.rank = rank
        self._fd = os.open(path, os.O_DIRECTORY | _FLAGS)
        try:
            _check_own(path, self._fd)
            self._alive = self.create(f"new.{rank}")
            try:
                fcntl.flock(self._alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.rename(f"new.{rank}", f"alive.{rank}")
            except BaseException:
                os.close(self._alive)
                raise
        except BaseException:
            os.close(self._fd)
            raise

    def create(self, name: str) -> int:
        """A new file, open for writing and reading; `FileExistsError` when the name is taken."""
        return os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600, dir_fd=self._fd)

    def open(self, name: str) -> int | None:
        """A file open for reading, None when there is none of this name."""
        try:
            return os.open(name, os.O_RDONLY | _FLAGS, dir_fd=self._fd)
        except FileNotFoundError:
            return None

    def link(self, name: str, other: str) -> None:
        """A second name for a file."""
        os.link(name, other, src_dir_fd=self._fd, dst_dir_fd=self._fd, follow_symlinks=False)

    def rename(self, name: str, other: str) -> None:
        """Another name for a file, at once."""
        os.rename(name, other, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def remove(self, name: str) -> None:
        """Take a name away; a missing one is no error."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._fd)

    def names(self) -> list[str]:
        """All names."""
        return os.listdir(self._fd)  # noqa: PTH208 - of the folder that is open, whatever its path names by now

    def write(self, name: str, body: bytes) -> None:
        """A new file that is seen whole or not at all."""
        hidden = f"new.{self.rank}.{name}"
        fd = self.create(hidden)
        try:
            done = 0
            while done < len(body):
                done += os.write(fd, memoryview(body)[done:])
            self.rename(hidden, name)
        except BaseException:
            self.remove(hidden)
            raise
        finally:
            os.close(fd)

    def read(self, name: str) -> bytes | None:
        """A file's bytes, None when there is none of this name."""
        fd = self.open(name)
        if fd is None:
            return None
        with os.fdopen(fd, "rb") as file:
            return file.read()

    def lock(self, name: str) -> int | None:
        """The lock of this name, to be given back by closing it; None while another rank has it."""
        fd = os.open(name, os.O_RDWR | os.O_CREAT | _FLAGS, 0o600, dir_fd=self._fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        return fd

    def alive(self, rank: int) -> bool:
        """Whether a rank that came is still there: neither left nor died."""
        return self._held(f"alive.{rank}")

    def _held(self, name: str) -> bool:
        fd = self.open(name)
        if fd is None:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def leave(self) -> None:
        """Take away what is still there for this rank; who leaves last takes away all, that of the dead too.

        Each gives its own presence up before it looks for others, so at least the last sees nobody.
        """
        try:
            for name in self.names():
                if name.endswith(f".for.{self.rank}") or name.startswith(f"new.{self.rank}."):
                    self.remove(name)
            self.remove(f"alive.{self.rank}")
            os.close(self._alive)
            names = self.names()
            if not any(name.startswith("alive.") and self._held(name) for name in names):
                for name in names:
                    self.remove(name)
                with suppress(OSError):  # somebody else was faster, or has just come and will be the last
                    self.path.rmdir()
        finally:
            os.close(self._fd)
            self._fd = -1  # whoever still asks gets an error, not another file of this number


def _check_own(path: Path, fd: int) -> None:
    found = os.fstat(fd)
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != 0o700:
        raise PermissionError(f"{path} is not this user's alone")


def make_folder(rank: int, *, need: int, where: Path | None = None) -> Folder:
    """A new folder under ``where``; by default in memory if ``need`` bytes are free there, else a temporary one.

    What killed ranks of earlier jobs left there is taken away first.
    """
    place = where
    if place is None:
        place = _MEMORY if _MEMORY.is_dir() and room_in(_MEMORY) >= need else Path(tempfile.gettempdir())
    _sweep(place)
    path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
    try:
        return Folder(path, rank)
    except BaseException:
        path.rmdir()
        raise


def open_folder(path: Path, rank: int) -> Folder | None:
    """The folder that another rank made, None when this rank cannot use it (other containers have other memory)."""
    try:
        return Folder(path, rank)
    except OSError:
        return None


def room_in(path: Path) -> int:
    """The bytes that may still be written under a path."""
    free = os.statvfs(path)
    return free.f_bavail * free.f_frsize


def _sweep(place: Path) -> None:
    """Take away folders of this user's whose ranks have all died."""
    for path in place.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if any(path.glob("alive.*")):  # one without is being made at this moment
                Folder(path, -os.getpid()).leave()
