"""The folders of a local store: opened part by part, made durable before anything is put in them."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from everstep.errors import StoreError, UnsuitableStore
from everstep.store.calls import Calls
from everstep.store.durable_write import sync
from everstep.store.flags import FOLDER, NO_LINK

__all__ = ["Directories"]

_PINS = 64
_Parts = tuple[str, ...]


class Directories:
    """Folders under one root. No symbolic link below the root is followed.

    A folder that is there need not be there after a power loss: another process may have made it and not
    synced its parent yet. So the parent is synced once for every folder that this process puts something
    in, and the folder is remembered by an open descriptor, whose inode number cannot be used again.
    """

    def __init__(self, root: Path, calls: Calls) -> None:
        self._root = root
        self._calls = calls
        self._lock = threading.Lock()
        self._pins: OrderedDict[_Parts, int] = OrderedDict()
        self._failed: set[_Parts] = set()
        self._root_made = False
        weakref.finalize(self, _close_all, self._pins)

    def open(self, parts: Sequence[str]) -> int:
        """A descriptor of a folder that exists, for the caller to close. Raises `OSError`."""
        fd = os.open(self._root, FOLDER)
        for part in parts:
            fd = self._step(fd, part)
        return fd

    def make(self, parts: Sequence[str]) -> int:
        """A descriptor of a folder that is there after a power loss, for the caller to close.

        Raises `OSError`, and `StoreError` when a sync of it failed before.
        """
        if not self._root_made:
            self._make_root()
            self._root_made = True
        path: _Parts = ()
        fd = os.open(self._root, FOLDER)
        for part in parts:
            path = (*path, part)
            fd = self._step(fd, part, path)
        return fd

    def sync(self, parts: Sequence[str], fd: int) -> None:
        """Make the names in a folder durable. After a failure nothing is put in that folder any more.

        The kernel reports a failed write once: a second sync would succeed and prove nothing.
        """
        path = tuple(parts)
        if path in self._failed:
            raise StoreError(
                f"a sync of {self._root.joinpath(*parts)} failed before: what is in it may not be on the disk",
                hint="check the disk and its kernel log, then start the process again",
                path=str(self._root.joinpath(*parts)),
            )
        try:
            sync(self._calls, fd)
        except OSError:
            self._failed.add(path)
            raise

    def remove_if_empty(self, parts: Sequence[str]) -> None:
        """Remove a folder and those above it, up to the root, as long as they are empty.

        Best effort: an empty folder holds no object, and others may be filling it this moment.
        """
        for depth in range(len(parts), 0, -1):
            try:
                parent = self.open(parts[: depth - 1])
            except OSError:
                return
            try:
                self._calls.rmdir(parts[depth - 1], dir_fd=parent)
            except OSError:
                return
            finally:
                self._calls.close(parent)

    def _step(self, parent: int, part: str, make: _Parts | None = None) -> int:
        """Open ``part`` in ``parent``, which is closed; with ``make``, make it and its entry durable."""
        try:
            if make is None:
                return self._enter(parent, part)
            try:
                fd = self._enter(parent, part)
            except FileNotFoundError:
                with contextlib.suppress(FileExistsError):
                    self._calls.mkdir(part, dir_fd=parent)
                fd = self._enter(parent, part)
            try:
                if not self._pinned(make, fd):
                    self.sync(make[:-1], parent)
                    self._pin(make, fd)
            except BaseException:
                os.close(fd)
                raise
            return fd
        finally:
            os.close(parent)

    def _enter(self, parent: int, part: str) -> int:
        try:
            return os.open(part, FOLDER | NO_LINK, dir_fd=parent)
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISLNK(os.stat(part, dir_fd=parent, follow_symlinks=False).st_mode):
                    raise UnsuitableStore(
                        f"{part} in {self._root} is a symbolic link, which is never followed",
                        hint="a store holds real folders and files only; its root may be reached by a link",
                        path=str(self._root),
                    ) from None
            raise

    def _make_root(self) -> None:
        missing = [at for at in (self._root, *self._root.parents) if not at.exists()]
        for folder in reversed(missing):
            with contextlib.suppress(FileExistsError):
                self._calls.mkdir(str(folder))
        for folder in missing or [self._root]:
            try:
                above = self._calls.open(str(folder.parent), FOLDER)
            except PermissionError:
                if missing:
                    raise
                return  # a root given to us in a folder that we cannot open: its maker's, and there before
            try:
                sync(self._calls, above)
            finally:
                self._calls.close(above)

    def _pinned(self, path: _Parts, fd: int) -> bool:
        with self._lock:
            pin = self._pins.get(path)
            if pin is None or not os.path.sameopenfile(pin, fd):
                return False
            self._pins.move_to_end(path)
            return True

    def _pin(self, path: _Parts, fd: int) -> None:
        with self._lock:
            old = self._pins.pop(path, None)
            if old is not None:
                os.close(old)
            elif len(self._pins) >= _PINS:
                os.close(self._pins.popitem(last=False)[1])
            self._pins[path] = os.dup(fd)


def _close_all(pins: OrderedDict[_Parts, int]) -> None:
    while pins:
        os.close(pins.popitem()[1])
