"""The one process that may talk to clouds: the library's threads do not survive a fork."""

from __future__ import annotations

import os

from everstep.errors import StoreError

__all__ = ["enter_cloud"]

# The library starts its threads once per process, at its first request; a forked child has their locks
# without the threads and would wait for ever. This mirrors that hidden state, so it is state too.
_started_in: list[int] = []


def enter_cloud(url: str) -> None:
    """Note the first request of this process; refuse any in a child that was forked after that.

    Raises `StoreError`. A child that was forked before the first request may ask freely.
    """
    if not _started_in:
        _started_in.append(os.getpid())
    elif _started_in[0] != os.getpid():
        raise StoreError(
            f"{url} cannot be used in this process: it was forked from process {_started_in[0]}, "
            "which had used a cloud store already",
            hint="start the process by spawn or forkserver, or leave the store to the parent",
            url=url,
        )
