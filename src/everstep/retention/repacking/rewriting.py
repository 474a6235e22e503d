"""One checkpoint written anew without some packs: an ordinary save of the same step, which is to take its place."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from everstep.errors import CheckpointPruned, EverstepError
from everstep.format.manifest import IndexRef, Manifest
from everstep.format.outline import Outline
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.heirs import inherit
from everstep.repository.parallel import gather
from everstep.repository.reading import by_path, read_index, read_manifest
from everstep.repository.repository import Repository
from everstep.repository.retitle import retitled
from everstep.repository.saves import Save, abort, begin_again, commit, write_index
from everstep.repository.tombs import tombed
from everstep.repository.verified import mark_verified, verified
from everstep.retention.chunks import indexes_of
from everstep.retention.repacking.moving import Move, Spot, dealt, moves, relocated
from everstep.retention.repacking.new_packs import write_pack

__all__ = ["Donated", "Rewritten", "Stopped", "rewrite"]

_WAIT_S: Final = 60.0
_PACK_BYTES: Final = 64 * 2**20

Donated = dict[str, tuple[Spot, Checkpoint]]
"""By digest where a chunk was put already, and a checkpoint that has it there."""


class Stopped(Exception):
    """The caller asked to stop; the save was given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """The old checkpoint, the one that is to take its place, and the bytes of the packs that were written for it."""

    old: Checkpoint
    new: Checkpoint
    written: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    repo: Repository
    old: Checkpoint
    manifest: Manifest
    packs: Collection[str]
    stop: Callable[[], bool]
    moved: Callable[[int], None]
    pack_bytes: int


def rewrite(
    repo: Repository,
    old: Checkpoint,
    packs: Collection[str],
    donated: Donated,
    *,
    stop: Callable[[], bool],
    moved: Callable[[int], None],
    pack_bytes: int = _PACK_BYTES,
) -> Rewritten:
    """Commit a checkpoint of the same step, attempt, time and content that needs none of ``packs``.

    What it needs of them is referred to where ``donated`` has it, else goes into new packs, and into ``donated``. The
    old checkpoint stands afterwards as well. ``moved`` is told bytes as they are moved. In memory are one new
    pack, a few indexes, and a record for each chunk that moves. When the old one was verified, so is the new one:
    all its other bytes are the same objects.

    Raises `CheckpointPruned` when the old one was pruned meanwhile, `SaveAborted` or `Fenced` when another process
    gave the new one up, `Stopped`, and an `IntegrityError` for damage: then no checkpoint was made.
    """
    work = _Work(
        repo=repo,
        old=old,
        manifest=read_manifest(repo, old),
        packs=packs,
        stop=stop,
        moved=moved,
        pack_bytes=pack_bytes,
    )
    needed = _needed(work)
    donors = _donors(needed, donated, old)
    for donor in donors:
        inherit(repo, of=donor.run, heir=old.run)
    save = begin_again(repo, old, bases=donors)
    try:
        made = _made(work, save, needed, donated)
    except (EverstepError, Stopped) as error:
        with contextlib.suppress(EverstepError):  # else the next repack, launch or prune gives it up
            abort(repo, save, f"the repack was given up: {error}")
        raise
    for digest, spot in made.spots.items():
        donated.setdefault(digest, (spot, made.checkpoint))
    return Rewritten(old=old, new=made.checkpoint, written=sum(made.written.values()))


def _needed(work: _Work) -> dict[str, Move]:
    """The chunks that have to lie elsewhere, each once, in the order of ranks."""
    entries = by_path(work.manifest.entries)
    found: dict[str, Move] = {}
    for index in indexes_of(work.repo, work.old, work.manifest):
        for move in moves(index, entries, work.packs):
            found.setdefault(move.digest, move)
    return found


def _donors(needed: Iterable[str], donated: Donated, old: Checkpoint) -> list[Checkpoint]:
    """The checkpoints whose packs the new one will refer to, each once, other than the old one."""
    homes = (donated[digest][1] for digest in needed if digest in donated)
    found = {(home.run, home.save): home for home in homes}
    found.pop((old.run, old.save), None)
    return list(found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    checkpoint: Checkpoint
    spots: Mapping[str, Spot]
    written: Mapping[int, int]


def _made(work: _Work, save: Save, needed: Mapping[str, Move], donated: Donated) -> _Made:
    """Packs, indexes, commit. Of what was donated only that counts whose home stood when the plan was there."""
    repo, old = work.repo, work.old
    pinned = {(base.run, base.save) for base in save.bases}
    spots = {
        digest: donated[digest][0]
        for digest in needed
        if digest in donated and (donated[digest][1].run, donated[digest][1].save) in pinned
    }
    written = _moved(work, save, [move for digest, move in needed.items() if digest not in spots], spots)
    entries = by_path(work.manifest.entries)

    def remake(ref: IndexRef) -> Outline:
        index = read_index(repo, old, ref, entries)
        again = retitled(index, ref, run=old.run, save=str(save.id), stored_bytes=written.get(ref.rank, 0))
        return write_index(repo, save, relocated(again, work.packs, spots), entries=entries)

    outlines = gather(remake, work.manifest.indexes)
    if old.save in verified(repo, old.run):
        mark_verified(repo, old.run, save.id, by="repack")
    if tombed(repo, old.run, old.save):
        raise CheckpointPruned(f"{old} was pruned meanwhile", run=old.run, step=old.step)
    return _Made(checkpoint=commit(repo, save, outlines, timeout_s=_WAIT_S), spots=spots, written=written)


def _moved(work: _Work, save: Save, chunks: list[Move], spots: dict[str, Spot]) -> dict[int, int]:
    """Write the new packs, and note in ``spots`` where each chunk lies; the bytes written, by rank."""
    numbers: dict[int, int] = defaultdict(int)
    written: dict[int, int] = defaultdict(int)
    for pack in dealt(chunks, pack_bytes=work.pack_bytes):
        if work.stop():
            raise Stopped("asked to stop")
        key = save.pack_key(pack.rank, numbers[pack.rank])
        write_pack(work.repo.store, key, pack)
        numbers[pack.rank] += 1
        written[pack.rank] += pack.size
        for move, place in zip(pack.moves, pack.places, strict=True):
            spots[move.digest] = Spot(key=key, offset=place, length=move.length)
            work.moved(move.length)
    return written
