"""Objects as files under a folder of a local disk, durable under power loss."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from everstep.errors import (
    AlreadyExists,
    InvalidManifest,
    InvalidName,
    ObjectNotFound,
    ShortRead,
    UnsuitableStore,
)
from everstep.store.calls import Calls
from everstep.store.directories import Directories
from everstep.store.durable_write import write_new
from everstep.store.flags import READ_FILE
from everstep.store.keys import RESERVED, check_key, check_prefix
from everstep.store.local_errors import explained
from everstep.store.mounts import better_url, mount_of
from everstep.store.protocol import Body, Listed
from everstep.store.walk import walk

__all__ = ["LocalStore"]

_LEFTOVER_S = 3600.0
"""A writer touches its file with every block; one that stood still for so long finds it gone, and its save fails."""
_MOST_READ = 1 << 30
_TRIES = 100
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK})


def _random_hex(count: int) -> str:
    return os.urandom(count).hex()  # what `secrets` gives, without OpenSSL's 10 ms to import


class LocalStore:
    """A folder. An object is written to a file beside the others, synced, and linked to its name.

    ``calls`` are the system calls that change the disk, ``entropy`` gives names to unfinished files,
    ``clock`` (seconds since 1970) tells which of them are left over. Nothing is made before the first
    ``create``. Raises `UnsuitableStore` for a place that cannot keep a store's promises.
    """

    def __init__(
        self,
        root: Path,
        *,
        calls: Calls = os,
        entropy: Callable[[int], str] = _random_hex,
        clock: Callable[[], float] = time.time,
        mountinfo: Path = Path("/proc/self/mountinfo"),
    ) -> None:
        self._root = root.resolve()
        self._calls = calls
        self._entropy = entropy
        self._clock = clock
        self._swept = False
        _refuse_unsuitable(self._root, mountinfo)
        self._directories = Directories(self._root, calls)

    @property
    def url(self) -> str:
        """``file://`` and the path of the folder."""
        return self._root.as_uri()

    def create(self, key: str, body: Body) -> None:
        """Write, sync, link, sync the folder: only then is it there, and is it there for good."""
        check_key(key)
        view = memoryview(body).cast("B")
        *parents, name = key.split("/")
        with self._explaining("create", key, view.nbytes):
            self._refuse_taken(key, parents, name)
            with self._written(view) as (unfinished, tmp):
                self._link(unfinished, tmp, key, parents, name)

    def get(self, key: str, limit: int) -> bytes:
        """The whole object; its size is looked at before anything is read."""
        with self._explaining("get", key), self._opened(key) as (fd, size):
            if size > limit:
                raise InvalidManifest(
                    f"{key} in {self.url} has {size} bytes, more than the {limit} allowed",
                    key=key,
                    store=self.url,
                    size=size,
                    limit=limit,
                )
            body = bytearray(size)
            self._fill(key, fd, 0, memoryview(body))
            return bytes(body)

    def get_range(self, key: str, start: int, into: memoryview) -> None:
        """Read straight into ``into``, through the page cache: ranks of one machine often read the same.

        Measured on several threads, direct reads and advice to read ahead were no faster when cold, and
        direct reads two to three times slower when warm.
        """
        with self._explaining("get_range", key), self._opened(key) as (fd, _size):
            self._fill(key, fd, start, into)

    def list(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """Walk the folders in the order of their keys; those that cannot hold an answer are not entered."""
        check_prefix(prefix)
        return self._listed(prefix, after)

    def delete(self, key: str) -> None:
        """Remove the file, sync its folder, and remove folders that are empty now."""
        check_key(key)
        *parents, name = key.split("/")
        with self._explaining("delete", key):
            try:
                folder = self._directories.open(parents)
            except (FileNotFoundError, NotADirectoryError):
                return
            try:
                self._calls.unlink(name, dir_fd=folder)
                self._directories.sync(parents, folder)
            except FileNotFoundError:
                return
            except (IsADirectoryError, PermissionError):
                if not _is_folder(folder, name):
                    raise
                return  # keys lie below it, but it is none
            finally:
                os.close(folder)
            self._directories.remove_if_empty(parents)

    @contextlib.contextmanager
    def _explaining(self, verb: str, key: str, size: int = 0) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            path = str(self._root / key)
            raise explained(error, verb=verb, key=key, path=path, size=size) from error

    @contextlib.contextmanager
    def _opened(self, key: str) -> Iterator[tuple[int, int]]:
        """A descriptor for reading and the object's size."""
        check_key(key)
        *parents, name = key.split("/")
        try:
            folder = self._directories.open(parents)
            try:
                fd = os.open(name, READ_FILE, dir_fd=folder)
            finally:
                os.close(folder)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ObjectNotFound(f"no {key} in {self.url}", key=key, store=self.url) from error
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise self._not_a_file(key) from error
            raise
        try:
            found = os.fstat(fd)
            if stat.S_ISDIR(found.st_mode):
                raise ObjectNotFound(f"no {key} in {self.url}, only keys below it", key=key, store=self.url)
            if not stat.S_ISREG(found.st_mode):
                raise self._not_a_file(key)
            yield fd, found.st_size
        finally:
            os.close(fd)

    def _fill(self, key: str, fd: int, start: int, into: memoryview) -> None:
        done = 0
        while done < len(into):
            got = os.preadv(fd, [into[done : done + _MOST_READ]], start + done)
            if got == 0:
                raise ShortRead(
                    f"{key} in {self.url} has {done} bytes from {start} on, {len(into)} were asked for",
                    key=key,
                    store=self.url,
                    start=start,
                    asked=len(into),
                    got=done,
                )
            done += got

    def _listed(self, prefix: str, after: str) -> Iterator[Listed]:
        *parents, _rest = prefix.split("/")
        with self._explaining("list", prefix):
            try:
                folder = self._directories.open(parents)
            except (FileNotFoundError, NotADirectoryError):
                return
            yield from walk(folder, "".join(f"{part}/" for part in parents), prefix, after)

    def _refuse_taken(self, key: str, parents: Sequence[str], name: str) -> None:
        """Raise `AlreadyExists` when the key is taken, before anything is written."""
        try:
            folder = self._directories.open(parents)
        except FileNotFoundError:
            return
        try:
            self._raise_if_taken(folder, key, name)
        except AlreadyExists:
            self._settle(parents)
            raise
        finally:
            os.close(folder)

    def _raise_if_taken(self, folder: int, key: str, name: str) -> None:
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return
        if stat.S_ISREG(found.st_mode):
            raise AlreadyExists(f"{key} exists in {self.url}", key=key, store=self.url)
        if stat.S_ISDIR(found.st_mode):
            raise InvalidName(
                f"{key} in {self.url} is a folder with other keys below it",
                hint="on a local disk one key cannot lie under another",
                key=key,
                store=self.url,
            )
        raise self._not_a_file(key)

    def _settle(self, parents: Sequence[str]) -> None:
        """Sync what another writer has linked and perhaps not synced yet: who is told of it may count on it."""
        folder = self._directories.make(parents)
        try:
            self._directories.sync(parents, folder)
        finally:
            os.close(folder)

    @contextlib.contextmanager
    def _written(self, view: memoryview) -> Iterator[tuple[int, str]]:
        """The folder and the name of a synced file with these bytes, which is removed in the end."""
        folder = self._unfinished_folder()
        tmp = f"{os.getpid()}-{self._entropy(8)}"
        try:
            try:
                write_new(self._calls, folder, tmp, view)
                yield folder, tmp
            finally:
                with contextlib.suppress(FileNotFoundError):
                    self._calls.unlink(tmp, dir_fd=folder)
        finally:
            os.close(folder)

    def _link(self, unfinished: int, tmp: str, key: str, parents: Sequence[str], name: str) -> None:
        for _ in range(_TRIES):
            try:
                folder = self._directories.make(parents)
                try:
                    self._link_in(unfinished, tmp, folder, key, name)
                    self._directories.sync(parents, folder)
                except AlreadyExists:
                    self._directories.sync(parents, folder)
                    raise
                finally:
                    os.close(folder)
            except FileNotFoundError:
                os.stat(tmp, dir_fd=unfinished)
                continue  # a delete beside us removed the folder while it was empty: make it again
            return
        raise FileNotFoundError(errno.ENOENT, "its folder is removed again and again")

    def _link_in(self, unfinished: int, tmp: str, folder: int, key: str, name: str) -> None:
        """Give the finished file its name. Raises `AlreadyExists`; FileNotFoundError to try again."""
        try:
            self._calls.link(tmp, name, src_dir_fd=unfinished, dst_dir_fd=folder)
        except FileExistsError:
            if not _same_file(unfinished, tmp, folder, name):  # NFS can say so after its own success
                self._raise_if_taken(folder, key, name)
                raise FileNotFoundError(errno.ENOENT, "it existed a moment ago", name) from None
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            raise UnsuitableStore(
                f"no hard link can be made in {self._root}: {error.strerror}",
                hint="use one local file system that has hard links (ext4, xfs, btrfs, zfs, apfs, nfs)",
                path=str(self._root),
            ) from error

    def _unfinished_folder(self) -> int:
        os.close(self._directories.make(()))
        try:
            folder = self._directories.open((RESERVED,))
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                self._calls.mkdir(str(self._root / RESERVED))
            folder = self._directories.open((RESERVED,))
        if not self._swept:
            self._swept = True
            self._sweep_if_possible(folder)
        return folder

    def _sweep_if_possible(self, folder: int) -> None:
        """Remove what processes that died left behind an hour ago. Best effort: it is never listed nor read."""
        for tmp in os.listdir(folder):
            with contextlib.suppress(OSError):
                if os.stat(tmp, dir_fd=folder, follow_symlinks=False).st_mtime < self._clock() - _LEFTOVER_S:
                    self._calls.unlink(tmp, dir_fd=folder)

    def _not_a_file(self, key: str) -> UnsuitableStore:
        return UnsuitableStore(
            f"{key} in {self.url} is a symbolic link or another thing that is not a file: never followed",
            hint="a store holds real folders and files only; its root may be reached by a link",
            key=key,
            store=self.url,
        )


def _is_folder(folder: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)


def _same_file(folder: int, name: str, other_folder: int, other: str) -> bool:
    one = os.stat(name, dir_fd=folder, follow_symlinks=False)
    try:
        two = os.stat(other, dir_fd=other_folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(one, two)


def _refuse_unsuitable(root: Path, mountinfo: Path) -> None:
    if os.name != "posix":
        raise UnsuitableStore(
            f"a local store needs a POSIX system, and {root} is not on one",
            hint="use a cloud store",
            path=str(root),
        )
    if root.exists() and not root.is_dir():
        raise UnsuitableStore(
            f"{root} is not a folder", hint="name a folder, or one to be made", path=str(root)
        )
    if mountinfo.exists():
        mount = mount_of(root, mountinfo.read_text(errors="surrogateescape"))
        url = better_url(mount) if mount else None
        if mount and url:
            raise UnsuitableStore(
                f"{root} lies on {mount.point}, a mounted object store ({mount.kind}): it cannot link, or overwrites,"
                " or calls bytes durable before they are",
                hint=f"use the object store itself: {url}",
                path=str(root),
                mount=mount.point,
                kind=mount.kind,
            )
