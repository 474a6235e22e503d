"""Which states a disk may be in after a power loss, from the system calls that were really made.

The model of the disk is the weakest that POSIX allows: the bytes of a file are safe when the file was synced
after they were written, else nothing, a part or all of them is there; a name in a directory (made, linked,
removed) is safe when the directory was synced after it, else it is there or not, each name by itself.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Disk", "Recorder", "lost_states"]

Files = dict[str, bytes]


@dataclass
class Recorder:
    """The system calls of a store: carried out by ``os``, and written down by inode.

    ``drop`` names syncs, by their number from 1, that are said to succeed and are not done: mutants.
    ``before_sync`` is called with the number of each sync before it is done.
    """

    root: Path
    drop: frozenset[int] = frozenset()
    before_sync: Callable[[int], None] = lambda _n: None
    ops: list[tuple] = field(default_factory=list)
    syncs: int = 0
    _ids: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """The folder that the root of the store lies in is there from the beginning."""
        self._ids[self.root.parent.stat().st_ino] = 0

    def open(self, path, flags, mode=0o777, *, dir_fd=None):
        fd = os.open(path, flags, mode, dir_fd=dir_fd)
        if flags & os.O_CREAT:
            self.ops.append(
                ("name", self._parent(path, dir_fd), Path(path).name, self._born(os.fstat(fd)), "file")
            )
        return fd

    def pwrite(self, fd, data, offset, /):
        done = os.pwrite(fd, data, offset)
        self.ops.append(("write", self._id(fd), offset, bytes(data[:done])))
        return done

    def fsync(self, fd):
        self.syncs += 1
        self.before_sync(self.syncs)
        if self.syncs in self.drop:
            return
        os.fsync(fd)
        self.ops.append(("sync", self._id(fd)))

    def close(self, fd):
        os.close(fd)

    def link(self, src, dst, *, src_dir_fd=None, dst_dir_fd=None):
        os.link(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        inode = self._ids[os.stat(dst, dir_fd=dst_dir_fd).st_ino]
        self.ops.append(("name", self._id(dst_dir_fd), dst, inode, "link"))

    def unlink(self, path, *, dir_fd=None):
        os.unlink(path, dir_fd=dir_fd)
        self.ops.append(("gone", self._id(dir_fd), path))

    def mkdir(self, path, mode=0o777, *, dir_fd=None):
        os.mkdir(path, mode, dir_fd=dir_fd)
        made = os.stat(path, dir_fd=dir_fd)
        self.ops.append(("name", self._parent(path, dir_fd), Path(path).name, self._born(made), "folder"))

    def rmdir(self, path, *, dir_fd=None):
        os.rmdir(path, dir_fd=dir_fd)
        self.ops.append(("gone", self._id(dir_fd), path))

    def told(self, what: str, key: str, body: bytes = b"") -> None:
        """What the store's user did and was told: ``asked``, ``created``, ``dropping`` or ``deleted``."""
        self.ops.append(("told", what, key, body))

    def _born(self, made: os.stat_result) -> int:
        new = self._ids[made.st_ino] = len(self.ops) + 1  # numbers of inodes are used again: ours are not
        return new

    def _id(self, fd: int) -> int:
        return self._ids[os.fstat(fd).st_ino]

    def _parent(self, path: str, dir_fd: int | None) -> int:
        return self._id(dir_fd) if dir_fd is not None else self._ids[Path(path).parent.stat().st_ino]


@dataclass
class Disk:
    """What is safe, and what is not yet."""

    files: dict[int, bytes] = field(default_factory=dict)
    safe_files: dict[int, bytes] = field(default_factory=dict)
    safe_names: dict[int, dict[str, int]] = field(default_factory=lambda: {0: {}})
    unsafe_names: list[tuple] = field(default_factory=list)

    def apply(self, op: tuple) -> None:
        """Go on by one call."""
        match op:
            case ("name", _, _, inode, "file"):
                self.files[inode] = b""
                self.unsafe_names.append(op)
            case ("name", _, _, inode, "folder"):
                self.safe_names[inode] = {}
                self.unsafe_names.append(op)
            case ("name", *_) | ("gone", *_):
                self.unsafe_names.append(op)
            case ("write", inode, offset, data):
                old = self.files[inode].ljust(offset, b"\0")
                self.files[inode] = old[:offset] + data + old[offset + len(data) :]
            case ("sync", inode) if inode in self.files:
                self.safe_files[inode] = self.files[inode]
            case ("sync", inode):
                for change in self.unsafe_names:
                    if change[1] == inode:
                        _change(self.safe_names, change)
                self.unsafe_names = [change for change in self.unsafe_names if change[1] != inode]

    def after_power_loss(self, skipped: str) -> Iterator[Files]:
        """Every tree that may be found: the paths of its files and their bytes, without the folder ``skipped``."""
        unfinished = {op[3] for op in self.unsafe_names if op[0] == "name" and op[2] == skipped}
        unfinished |= {names[skipped] for names in self.safe_names.values() if skipped in names}
        open_ends = [op for op in self.unsafe_names if op[1] not in unfinished and op[2] != skipped]
        for kept in itertools.product((False, True), repeat=len(open_ends)):
            names = {folder: dict(inside) for folder, inside in self.safe_names.items()}
            for change in itertools.compress(open_ends, kept):
                _change(names, change)
            tree = dict(_paths(names, 0, "", skipped))
            dirty = sorted({i for i in tree.values() if self.safe_files.get(i) != self.files[i]})
            for survived in itertools.product(("nothing", "half", "all"), repeat=len(dirty)):
                fate = dict(zip(dirty, survived, strict=True))
                yield {path: self._bytes(inode, fate.get(inode, "safe")) for path, inode in tree.items()}

    def _bytes(self, inode: int, fate: str) -> bytes:
        now, safe = self.files[inode], self.safe_files.get(inode, b"")
        return {"safe": safe, "nothing": safe, "half": now[: len(now) // 2], "all": now}[fate]


def _change(names: dict[int, dict[str, int]], op: tuple) -> None:
    if op[0] == "name":
        names[op[1]][op[2]] = op[3]
    else:
        names[op[1]].pop(op[2], None)


def _paths(
    names: dict[int, dict[str, int]], folder: int, path: str, skipped: str
) -> Iterator[tuple[str, int]]:
    for name, inode in names[folder].items():
        if name == skipped:
            continue
        if inode in names:
            yield from _paths(names, inode, f"{path}{name}/", skipped)
        else:
            yield path + name, inode


def lost_states(recorder: Recorder, skipped: str) -> Iterator[tuple[int, Files, list[tuple]]]:
    """After every call: the number of calls, a tree that may be found, and what the user had been told."""
    disk, told = Disk(), []
    for done, op in enumerate([("begin",), *recorder.ops]):
        if op[0] == "told":
            told.append(op[1:])
        else:
            disk.apply(op)
        for files in disk.after_power_loss(skipped):
            yield done, files, list(told)
