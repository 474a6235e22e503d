"""The system calls that change a disk: the module ``os``, or one that records them or makes them fail."""

from __future__ import annotations

from typing import Protocol

from everstep.store.protocol import Body

__all__ = ["Calls"]


class Calls(Protocol):
    """The part of ``os`` that `LocalStore` changes the disk with. The module ``os`` itself is one."""

    def open(self, path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        """``openat(2)``."""
        ...

    def pwrite(self, fd: int, data: Body, offset: int, /) -> int:
        """``pwrite(2)``: may write less than asked."""
        ...

    def fsync(self, fd: int) -> None:
        """``fsync(2)``."""
        ...

    def close(self, fd: int) -> None:
        """``close(2)``."""
        ...

    def link(
        self, src: str, dst: str, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        """``linkat(2)``: fails when ``dst`` exists."""
        ...

    def unlink(self, path: str, *, dir_fd: int | None = None) -> None:
        """``unlinkat(2)``."""
        ...

    def mkdir(self, path: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        """``mkdirat(2)``."""
        ...

    def rmdir(self, path: str, *, dir_fd: int | None = None) -> None:
        """``unlinkat(2)`` of an empty directory."""
        ...
