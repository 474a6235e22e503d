"""Which file system a folder lies on, and whether it is an object store made to look like one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath

__all__ = ["Mount", "better_url", "mount_of"]

_OCTAL = re.compile(r"\\([0-7]{3})")

_URLS = (
    ("blobfuse", "az://CONTAINER/PREFIX"),
    ("gcsfuse", "gs://BUCKET/PREFIX"),
    ("s3fs", "s3://BUCKET/PREFIX"),
    ("mountpoint-s3", "s3://BUCKET/PREFIX"),
    ("mount-s3", "s3://BUCKET/PREFIX"),
    ("goofys", "s3://BUCKET/PREFIX"),
    ("geesefs", "s3://BUCKET/PREFIX"),
    ("yas3fs", "s3://BUCKET/PREFIX"),
    ("rclone", "az://, s3:// or gs://BUCKET/PREFIX, whichever it mounts"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One mounted file system: where, of what type, from what source."""

    point: str
    kind: str
    source: str


def mount_of(folder: PurePath, mountinfo: str) -> Mount | None:
    """The mount that an absolute, resolved ``folder`` lies on, by the text of ``/proc/self/mountinfo``.

    None when the text names none. Of mounts on one point the last one hides the others.
    """
    best: Mount | None = None
    for line in mountinfo.splitlines():
        place, _, system = line.partition(" - ")
        fields, types = place.split(" "), system.split(" ")
        if len(fields) < 5 or len(types) < 2:
            continue
        mount = Mount(point=_plain(fields[4]), kind=types[0], source=_plain(types[1]))
        if folder.is_relative_to(mount.point) and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def better_url(mount: Mount) -> str | None:
    """The form of URL to use in place of a mounted object store; None for a real file system.

    Such mounts have no hard links, overwrite on create, or say that bytes are durable before they are.
    """
    if mount.kind != "fuse" and not mount.kind.startswith("fuse."):
        return None
    program = mount.kind.removeprefix("fuse").removeprefix(".").lower()
    source = mount.source.lower()
    for name, url in _URLS:
        if program.startswith(name) or (not program and source.startswith(name)):
            return url
    return None


def _plain(text: str) -> str:
    return _OCTAL.sub(lambda code: chr(int(code[1], 8)), text)
