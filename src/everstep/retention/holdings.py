"""What the saves of a run hold in the store: which packs, and whether they are live, waiting or given up."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from everstep.errors import IntegrityError
from everstep.format.ids import SaveId
from everstep.repository.catalogue import decided
from everstep.repository.checkpoint import Checkpoint, checkpoint_of
from everstep.repository.keys import plans_prefix, save_of_pack, save_of_plan
from everstep.repository.objects import listed
from everstep.repository.parallel import gather
from everstep.repository.repository import Repository
from everstep.repository.tombs import pruned
from everstep.retention.marking import PackLists

__all__ = ["Held", "Holdings", "holdings", "less", "of_dead_saves", "pack_sizes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A checkpoint and the packs that it needs, its own and those of others."""

    checkpoint: Checkpoint
    packs: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """The saves of one run.

    ``live`` are the checkpoints, newest first, also one that another is to replace; ``waiting`` those that were pruned
    and not swept; ``dead`` all that were pruned or aborted; ``undecided`` those under way, or left by a crash.
    ``damaged`` are checkpoints of which it cannot be told what they need, and why not.
    """

    run: str
    live: tuple[Held, ...]
    waiting: tuple[Held, ...]
    dead: frozenset[SaveId]
    undecided: tuple[SaveId, ...]
    damaged: tuple[tuple[SaveId, IntegrityError], ...] = ()

    @property
    def alive(self) -> frozenset[SaveId]:
        """The saves that are checkpoints, damaged ones too."""
        return frozenset((*(one.checkpoint.save for one in self.live), *(save for save, _ in self.damaged)))


def holdings(repo: Repository, run: str, lists: PackLists) -> Holdings:
    """Look through a run: three lists, then record and manifest of each checkpoint that is there or waits.

    ``lists`` remembers records and manifests that were read before. Plans are listed before records, so that a save
    that is decided in between counts as decided.
    """
    gone = pruned(repo, run)
    planned = [
        save
        for found in listed(repo.store, plans_prefix(run))
        if (save := save_of_plan(run, found.key)) is not None
    ]
    saves = list(decided(repo, run))
    unswept, known = frozenset(planned), frozenset(saves)
    wanted = [save for save in saves if str(save) not in gone or save in unswept]
    results = gather(lambda save: _held(lists, run, save), wanted)
    held = [one for one in results if isinstance(one, Held)]
    lost = {save for save in saves if str(save) in gone}
    given_up = {save for save, one in zip(wanted, results, strict=True) if one is None}
    return Holdings(
        run=run,
        live=tuple(one for one in held if str(one.checkpoint.save) not in gone),
        waiting=tuple(one for one in held if str(one.checkpoint.save) in gone),
        dead=frozenset(lost | given_up),
        undecided=tuple(save for save in planned if save not in known),
        damaged=tuple(
            (save, one)
            for save, one in zip(wanted, results, strict=True)
            if isinstance(one, IntegrityError) and str(save) not in gone
        ),
    )


def _held(lists: PackLists, run: str, save: SaveId) -> Held | IntegrityError | None:
    """What a decided save holds; None when it was aborted, and the error when it cannot be told."""
    try:
        record = lists.decision(run, save)
        if record.state != "committed":
            return None
        found = checkpoint_of(record, run, save)
        return Held(checkpoint=found, packs=lists.packs(found))
    except IntegrityError as error:
        return error


def less(found: Holdings, gone: Collection[tuple[str, SaveId]]) -> Holdings:
    """The holdings as they would be when these saves were pruned, by run and save."""
    stays = [one for one in found.live if (found.run, one.checkpoint.save) not in gone]
    goes = [one for one in found.live if (found.run, one.checkpoint.save) in gone]
    return replace(
        found,
        live=tuple(stays),
        waiting=(*found.waiting, *goes),
        dead=found.dead | {one.checkpoint.save for one in goes},
    )


def pack_sizes(repo: Repository) -> dict[str, int]:
    """Every pack of the store and its bytes; one list. What has another name there is none of ours."""
    return {
        found.key: found.size for found in listed(repo.store, "packs/") if save_of_pack(found.key) is not None
    }


def of_dead_saves(found: Iterable[Holdings]) -> tuple[list[Held], frozenset[str]]:
    """All live checkpoints, and of the packs that they need those whose own save is no checkpoint any more."""
    held = [one for run in found for one in run.live]
    alive = {save for run in found for save in run.alive}
    return held, frozenset(key for one in held for key in one.packs if save_of_pack(key) not in alive)
