"""Which checkpoint a launch restores: the same one on all its ranks, or none on any."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TypeVar

import msgspec

from everstep.checkpointer.launch import Launch
from everstep.checkpointer.restoring import Prepared, Restored, bring, finished, newest_whole, prepare
from everstep.errors import UsageError
from everstep.events import Listener
from everstep.format.entries import Entry
from everstep.format.ids import SaveId, parse_save
from everstep.repository.catalogue import candidates, checkpoint, committed, find
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.readable import archived_among, refuse
from everstep.repository.readers import gone_or_pruned, reading_long
from everstep.state.flat import Restoration
from everstep.store.protocol import Store
from everstep.transfer.node import on_node

__all__ = ["restore_together"]

T = TypeVar("T")

_NEWEST = "the newest"


class _Look(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a rank found: which step it was asked for, or that the save is none to restore.

    ``archived`` are the packs that it asked about and that cannot be read, by their place in the manifest's list.
    """

    asked: str = ""
    none: bool = False
    archived: tuple[int, ...] = ()


_LOOK = msgspec.json.Decoder(_Look)
_PLACES = msgspec.json.Decoder(tuple[int, ...])


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
    An error of one rank is raised on all, naming it; so is `Archived`, which is no damage, before any state is changed.
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
                with (
                    _pinned(launch, prepared.checkpoint),
                    gone_or_pruned(launch.repository, prepared.checkpoint),
                    node.share(prepared.reads) as (store, reads),
                ):
                    bring(
                        store, prepared, reads, budget_bytes=budget_bytes, workers=workers, listener=listener
                    )

            launch.together.all_or_none(f"{name}-bytes", verified)
        return finished(prepared)

    saves = _candidates(launch, topic, step)
    if step is not None:
        return read(next(saves))
    return newest_whole(saves, read, run=launch.run, on_corrupt=on_corrupt, listener=listener)


def _pinned(launch: Launch, checkpoint: Checkpoint) -> AbstractContextManager[None]:
    """A long restore is pinned by one rank for all."""
    return reading_long(launch.repository, checkpoint) if launch.rank == 0 else nullcontext()


def _candidates(launch: Launch, topic: str, step: int | None) -> Iterator[SaveId]:
    """The saves to try, newest first, as rank 0 lists them."""
    listed: list[Iterator[SaveId]] = []

    def name_one() -> bytes:
        if not listed:
            found = candidates(launch.repository, launch.run)
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

    Raises `UsageError` when ranks asked for different steps, `Archived` when a rank needs a pack in an archive tier.
    """
    found: list[Prepared[T]] = []

    def look() -> bytes:
        repository = replace(launch.repository, store=store)
        looked_up = checkpoint if launch.rank == 0 else committed
        candidate = looked_up(repository, launch.run, save)
        if candidate is None:
            return msgspec.json.encode(_Look(none=True))
        found.append(prepare(repository, candidate, match))
        asked = _NEWEST if step is None else f"step {step}"
        return msgspec.json.encode(_Look(asked=asked, archived=_archived(launch, found[0])))

    def decide(words: Mapping[int, bytes]) -> bytes:
        looks = {rank: _LOOK.decode(word) for rank, word in words.items()}
        if any(one.none for one in looks.values()):
            return msgspec.json.encode(_Look(none=True))
        odd = [rank for rank, one in looks.items() if one.asked != looks[0].asked]
        if odd:
            raise UsageError(
                f"rank 0 asked to restore {looks[0].asked}, and rank {odd[0]} {looks[odd[0]].asked}",
                hint="all ranks must call restore with the same step",
                ranks=tuple(odd),
            )
        places = {place for one in looks.values() for place in one.archived}
        return msgspec.json.encode(_Look(archived=tuple(sorted(places))))

    said = _LOOK.decode(launch.together.decided(f"{name}-fits", look, decide))
    if said.none:
        return None
    if said.archived:
        _refuse(launch, name, found[0], said.archived)
    return found[0]


def _archived(launch: Launch, prepared: Prepared[T]) -> tuple[int, ...]:
    """The packs in an archive tier among those that this rank asks about.

    Ranks deal the checkpoint's packs out, so that each is asked for its one byte once, however many ranks there are.
    """
    packs = prepared.manifest.packs
    mine = packs[launch.rank :: launch.world] if launch.world > 1 else sorted(_needed(prepared))
    found = set(archived_among(launch.repository.store, mine))
    return tuple(place for place, key in enumerate(packs) if key in found)


def _needed(prepared: Prepared[T]) -> set[str]:
    return {read.key for read in prepared.reads}


def _refuse(launch: Launch, name: str, prepared: Prepared[T], places: Sequence[int]) -> None:
    """Raise `Archived` on all ranks when any of them needs one of these packs; a part that none asks for may lie."""
    packs, needed = prepared.manifest.packs, _needed(prepared)

    def mine() -> bytes:
        return msgspec.json.encode([place for place in places if packs[place] in needed])

    def decide(words: Mapping[int, bytes]) -> bytes:
        wanted = sorted({place for word in words.values() for place in _PLACES.decode(word)})
        refuse(launch.repository, prepared.checkpoint, [packs[place] for place in wanted], of=len(packs))
        return b""

    launch.together.decided(f"{name}-archived", mine, decide)
