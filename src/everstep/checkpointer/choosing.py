"""Which checkpoint a launch restores: the same one on all its ranks, or none on any."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from everstep.checkpointer.launch import Launch
from everstep.checkpointer.restoring import Prepared, Restored, bring, finished, newest_whole, prepare
from everstep.errors import UsageError
from everstep.events import Listener
from everstep.format.entries import Entry
from everstep.format.ids import SaveId, parse_save
from everstep.repository.catalogue import checkpoint, committed, decided, find
from everstep.state.flat import Restoration
from everstep.store.protocol import Store
from everstep.transfer.node import on_node

__all__ = ["restore_together"]

T = TypeVar("T")

_NONE, _NEWEST = b"none", b"the newest"


def restore_together(
    launch: Launch,
    match: Callable[[Sequence[Entry]], Restoration[T]],
    *,
    step: int | None,
    on_corrupt: str,
    budget_bytes: int,
    workers: int,
    listener: Listener,
) -> Restored[T] | None:
    """Restore the newest whole checkpoint, or that of ``step``, on all ranks; None when the run has none.

    Rank 0 names the checkpoint. Nothing is changed before it fits on every rank, and no rank goes on before
    every rank has verified all its bytes: so damage that one rank sees takes all to the same older checkpoint.
    An error of one rank is raised on all, naming it.
    """
    topic = launch.next_topic("restore")

    def read(save: SaveId) -> Restored[T] | None:
        name = f"{topic}-{save}"
        with on_node(
            launch.together.ranks, launch.repository.store, topic=name, budget_bytes=budget_bytes
        ) as node:
            prepared = _fits(launch, name, save, match, step=step, store=node.store)
            if prepared is None:
                return None

            def verified() -> None:
                with node.share(prepared.reads) as (store, reads):
                    bring(
                        store, prepared, reads, budget_bytes=budget_bytes, workers=workers, listener=listener
                    )

            launch.together.all_or_none(f"{name}-bytes", verified)
        return finished(prepared)

    saves = _candidates(launch, topic, step)
    if step is not None:
        return read(next(saves))
    return newest_whole(saves, read, run=launch.run, on_corrupt=on_corrupt, listener=listener)


def _candidates(launch: Launch, topic: str, step: int | None) -> Iterator[SaveId]:
    """The saves to try, newest first, as rank 0 lists them."""
    listed: list[Iterator[SaveId]] = []

    def name_one() -> bytes:
        if not listed:
            found = decided(launch.repository, launch.run)
            listed.append(found if step is None else iter([find(launch.repository, launch.run, step).save]))
        return str(next(listed[0], "")).encode()

    number = 0
    while named := launch.together.from_first(f"{topic}-candidate-{number}", name_one):
        yield parse_save(named.decode())
        number += 1


def _fits(
    launch: Launch,
    name: str,
    save: SaveId,
    match: Callable[[Sequence[Entry]], Restoration[T]],
    *,
    step: int | None,
    store: Store,
) -> Prepared[T] | None:
    """The restore of one save, planned and agreed on; None when a rank finds it aborted or pruned.

    Raises `UsageError` when ranks asked for different steps.
    """
    found: list[Prepared[T]] = []

    def look() -> bytes:
        repository = replace(launch.repository, store=store)
        looked_up = checkpoint if launch.rank == 0 else committed
        candidate = looked_up(repository, launch.run, save)
        if candidate is None:
            return _NONE
        found.append(prepare(repository, candidate, match))
        return _NEWEST if step is None else f"step {step}".encode()

    def decide(words: Mapping[int, bytes]) -> bytes:
        if _NONE in words.values():
            return _NONE
        odd = [rank for rank, word in words.items() if word != words[0]]
        if odd:
            raise UsageError(
                f"rank 0 asked to restore {words[0].decode()}, and rank {odd[0]} {words[odd[0]].decode()}",
                hint="all ranks must call restore with the same step",
                ranks=tuple(odd),
            )
        return b""

    said = launch.together.decided(f"{name}-fits", look, decide)
    return None if said == _NONE else found[0]
