"""Ranks of one node read for each other: what several of them want is fetched once and handed on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import msgspec

from everstep.errors import RanksMissing
from everstep.plan.handing import Unit, Wish, arrange, hand_out, wish_of
from everstep.plan.requests import Read
from everstep.store.protocol import Store
from everstep.transfer.folder import Folder, make_folder, open_folder, room_in
from everstep.transfer.handing import Handing, Patience

__all__ = ["Local", "Node", "on_node"]

_ROUNDS: Final = 4
"""So many rounds may lie in memory at once: one ahead, one that is taken, and those of a slower rank."""


class Local(Protocol):
    """What is asked of `Ranks`."""

    @property
    def rank(self) -> int:
        """This rank's number."""
        ...

    @property
    def world(self) -> int:
        """How many there are."""
        ...

    @property
    def local_ranks(self) -> tuple[int, ...]:
        """Those on this node, sorted."""
        ...

    def tell(self, topic: str, word: bytes) -> None:
        """Say something to those who hear it."""
        ...

    def hear(self, topic: str, *, timeout_s: float, who: int = 0) -> bytes:
        """What a rank tells."""
        ...


class _Deal(msgspec.Struct, frozen=True, kw_only=True):
    """What the first rank of the node decides: the units, and the bytes each rank may have on their way."""

    units: tuple[Unit, ...]
    room: int


class Node:
    """This rank among those of its node that restore the same checkpoint.

    ``store`` reads whole objects (`Store.get`: manifest and indexes) once for all of them. `share` tells them which
    reads this rank has, and gives the store and the reads to `download` with. Alone, both are what they were.
    `close` it, or leave `on_node`.
    """

    def __init__(
        self,
        inner: Store,
        folder: Folder | None,
        *,
        members: Callable[[], tuple[int, ...]],
        first: int,
        budget_bytes: int,
        patience: Patience,
    ) -> None:
        self._inner = inner
        self._folder = folder
        self._members = members
        self._first = first
        self._budget = budget_bytes
        self._patience = patience
        self._open: list[Handing] = []
        self.store: Store = inner if folder is None else self._handing(folder, (), budget_bytes)

    @contextmanager
    def share(self, reads: Sequence[Read]) -> Iterator[tuple[Store, tuple[Read, ...]]]:
        """The store to read from, and the reads cut and ordered so that ranks read for each other.

        Every rank of the node calls it once, one that reads nothing too, or leaves the node: a rank that does
        neither is waited for until patience ends. On leaving, with an error too, the others see at once that nothing
        more comes from this rank. No rank waits for another without a deadline, and what does not come is read
        from the store.
        """
        folder = self._folder
        try:
            deal = None if folder is None else self._dealt(folder, reads)
        except OSError:  # no space even for a few words
            deal = None
        try:
            if folder is None or deal is None:
                yield self._inner, tuple(reads)
            else:
                ordered = arrange(reads, deal.units, folder.rank)
                yield self._handing(folder, deal.units, deal.room), ordered
        finally:
            self.close()

    def close(self) -> None:
        """Let files go, and the folder; again is no error."""
        for handing in self._open:
            handing.close()
        self._open.clear()
        if self._folder is not None:
            self._folder.leave()
            self._folder = None

    def _handing(self, folder: Folder, units: tuple[Unit, ...], room: int) -> Handing:
        handing = Handing(self._inner, folder, units=units, room_bytes=room, patience=self._patience)
        self._open.append(handing)
        return handing

    def _dealt(self, folder: Folder, reads: Sequence[Read]) -> _Deal | None:
        """What the first rank of the node decided; None when it gave no answer, or this rank came too late."""
        mine = wish_of(reads)
        if folder.rank == self._first:
            deal = self._decided(folder, mine)
            folder.write("deal", msgspec.msgpack.encode(deal))
            return deal
        folder.write(f"wish.{folder.rank}", msgspec.msgpack.encode(mine))
        found: list[bytes] = []

        def decided() -> bool:
            body = folder.read("deal")
            if body is not None:
                found.append(body)
            return body is not None

        self._patience.until(decided, lambda: not folder.alive(self._first))
        return msgspec.msgpack.decode(found[0], type=_Deal) if found else None

    def _decided(self, folder: Folder, mine: Wish) -> _Deal:
        wishes = {folder.rank: mine}
        missing = {rank for rank in self._members() if rank != folder.rank}

        def all_there() -> bool:
            for rank in sorted(missing):
                here = folder.alive(rank)
                body = folder.read(f"wish.{rank}")
                if body is not None:
                    wishes[rank] = msgspec.msgpack.decode(body, type=Wish)
                if body is not None or not here:
                    missing.discard(rank)
            return not missing

        self._patience.until(all_there, lambda: False)
        room = min(self._budget, room_in(folder.path) // (2 * len(wishes)))
        return _Deal(units=hand_out(wishes, round_bytes=room // _ROUNDS), room=room)


@contextmanager
def on_node(
    ranks: Local,
    store: Store,
    *,
    topic: str,
    budget_bytes: int = 2**30,
    patience_s: float = 60.0,
    where: Path | None = None,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> Iterator[Node]:
    """For one restore: the node's ranks find each other, and on leaving nothing stays behind.

    All ranks enter, with a ``topic`` that is new each time, and with the same checkpoint in mind::

        with on_node(ranks, store, topic=f"restore/{attempt}/{step}") as node:
            manifest = read_manifest(replace(repository, store=node.store), chosen)
            ...
            with node.share(plan_load(wanted, indexes)) as (reads_from, ordered):
                download(reads_from, ordered, wanted, ...)

    A rank alone on its node costs nothing: no exchange, no folder. Each rank has at most ``budget_bytes`` on their way
    to others, in shared memory if there is enough (or under ``where``); what has no room each rank reads for
    itself. ``patience_s`` is how long a rank waits for another, once; one that died is seen at once.
    Raises what ``ranks`` raises for a rank that does not say which ranks are on its node.
    """
    local = ranks.local_ranks if ranks.world > 1 else (ranks.rank,)
    topic = f"node-{topic.replace('/', '-')}"  # a family of topics of its own, in which nothing is settled
    patience = Patience(seconds=patience_s, sleep=sleep, now=now)
    with ExitStack() as stack:
        folder: Folder | None = None
        first = min(local)
        if len(local) > 1:
            make = partial(make_folder, ranks.rank, need=budget_bytes * len(local), where=where)
            folder = _joined(ranks, first, topic, make, patience_s)

        def members() -> tuple[int, ...]:
            end = now() + patience_s
            return tuple(
                rank for rank in local if rank == first or _came(ranks, topic, rank, max(0.0, end - now()))
            )

        node = Node(store, folder, members=members, first=first, budget_bytes=budget_bytes, patience=patience)
        stack.callback(node.close)
        yield node


def _joined(
    ranks: Local, first: int, topic: str, make: Callable[[], Folder], patience_s: float
) -> Folder | None:
    """The node's folder, made by its first rank, whose name the others hear; None for a rank that cannot use it."""
    folder: Folder | None
    if ranks.rank == first:
        try:
            folder = make()
        except OSError:
            folder = None
        ranks.tell(f"{topic}/folder", str(folder.path).encode() if folder else b"")
        return folder
    try:
        path = ranks.hear(f"{topic}/folder", timeout_s=patience_s, who=first).decode()
    except RanksMissing:  # the restore itself will name it, if it needs it
        return None
    folder = open_folder(Path(path), ranks.rank) if path else None
    ranks.tell(f"{topic}/came", b"yes" if folder else b"no")
    return folder


def _came(ranks: Local, topic: str, rank: int, patience_s: float) -> bool:
    try:
        return ranks.hear(f"{topic}/came", timeout_s=patience_s, who=rank) == b"yes"
    except RanksMissing:
        return False
