"""Which ranks share a node."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec

from everstep.ranks.identity import Identity

__all__ = ["node_id", "nodes", "ranks_on"]

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def node_id(boot: Path = _BOOT) -> str:
    """A name of this node: its host name, and on Linux the id of its boot, which no other machine has.

    Containers of one machine count as nodes of their own, because they share no files.
    """
    booted = boot.read_text().strip() if boot.is_file() else ""
    return f"{socket.gethostname()}@{booted}"


def nodes(words: Mapping[int, bytes]) -> bytes:
    """The ranks of each node, as JSON, from each rank's node id."""
    by_node: dict[bytes, list[int]] = {}
    for rank in sorted(words):
        by_node.setdefault(words[rank], []).append(rank)
    return msgspec.json.encode(list(by_node.values()))


def ranks_on(me: Identity, told: bytes | None = None) -> tuple[int, ...] | None:
    """The ranks on the node of ``me``, sorted: by what `nodes` made, or by torchrun's numbers, or None.

    torchrun numbers the ranks of a node one after another; other launchers may deal them out.
    """
    if me.world == 1:
        return (0,)
    if told is not None:
        return next(
            tuple(node) for node in msgspec.json.decode(told, type=list[list[int]]) if me.rank in node
        )
    if me.contiguous and me.local_rank is not None and me.local_world is not None:
        first = me.rank - me.local_rank
        if me.local_rank < me.local_world and 0 <= first <= me.world - me.local_world:
            return tuple(range(first, first + me.local_world))
    return None
