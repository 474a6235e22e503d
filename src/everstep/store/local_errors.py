"""What an error number of the operating system means for a store."""

from __future__ import annotations

import errno

from everstep.errors import (
    AccessDenied,
    EverstepError,
    InvalidName,
    ObjectNotFound,
    StoreError,
    StoreFull,
    StoreUnavailable,
)

__all__ = ["explained"]

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_SHAPE = frozenset({errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EILSEQ})
_PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN})


def explained(error: OSError, *, verb: str, key: str, path: str, size: int = 0) -> EverstepError:
    """The error of `everstep.errors` that ``error`` amounts to, with the path and the bytes named."""
    number, says = error.errno or 0, f"{verb} {path}: {error.strerror or error}"
    fields = {"key": key, "path": path, "errno": errno.errorcode.get(number, str(number))}
    if number in _FULL:
        return StoreFull(
            f"{says} ({size} bytes were to be written)",
            hint="free some space or raise the quota; checkpoints made before are intact",
            bytes=size,
            **fields,
        )
    if number in _DENIED:
        return AccessDenied(says, hint="check the owner and the mode of the store's folders", **fields)
    if number == errno.ENOENT and verb != "create":
        return ObjectNotFound(f"no {key} at {path}", **fields)
    if number in _SHAPE:
        return InvalidName(
            says,
            hint="on a local disk one key cannot lie under another, and a part has at most 255 bytes",
            **fields,
        )
    if number in _PASSING:
        return StoreUnavailable(
            says, hint="the machine is short of files or memory, or a server of time", **fields
        )
    return StoreError(says, hint="check the disk and its kernel log", **fields)
