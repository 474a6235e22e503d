"""Packs that are kept for a few chunks: the checkpoints that need these are written anew, and the packs can go."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from everstep.errors import CheckpointPruned, Fenced, SaveAborted
from everstep.events import Listener, Transferred, silent
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.reading import read_manifest
from everstep.repository.repository import Repository
from everstep.repository.runs import runs as all_runs
from everstep.retention.chunks import data_bytes, indexes_of, live_bytes, sparse, used_chunks
from everstep.retention.holdings import Held, Holdings, holdings, of_dead_saves, pack_sizes
from everstep.retention.marking import PackLists
from everstep.retention.repacking.kin import kin
from everstep.retention.repacking.moving import Spot
from everstep.retention.repacking.replacing import give_up_unfinished, take_over
from everstep.retention.repacking.rewriting import Donated, Rewritten, Stopped, rewrite

__all__ = ["Repacked", "repack"]

_PACK_BYTES = 64 * 2**20


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Repacked:
    """What a repack did.

    ``packs`` are those that no checkpoint needs any more. They go with the next sweep, but for those that a pruned
    checkpoint in its grace may need again: these, of ``bytes_waiting``, go after it. ``bytes_freed`` is what the store
    loses in the end: the packs' bytes less ``bytes_written``. ``rewritten`` has each old checkpoint with the one that
    has its place. ``gave_up`` says why the repack ended early; empty when it did not. What was rewritten before that
    stands, and the next repack goes on.
    """

    packs: tuple[str, ...]
    bytes_freed: int
    bytes_waiting: int
    bytes_written: int
    rewritten: tuple[tuple[Checkpoint, Checkpoint], ...]
    gave_up: str = ""


def repack(
    repo: Repository,
    runs: Sequence[str] | None = None,
    *,
    stop: Callable[[], bool] = _never,
    listener: Listener = silent,
    lists: PackLists | None = None,
    pack_bytes: int = _PACK_BYTES,
) -> Repacked:
    """Rewrite the packs whose own save is pruned and of which less than half is needed; of all runs, or of these.

    Each checkpoint that needs one, oldest first, also of forks, is written anew by `rewrite`, and the new one takes
    its place: step, tags and content stay, the save's id is another. A chunk that several need is stored once. Call it
    after a sweep, and sweep afterwards: nothing is deleted here.

    Costs what `holdings` costs for each run, one list of the packs, the indexes of the checkpoints that need packs of
    pruned ones, and for the chunks that move: read once, written once, read back once. Safe at a crash after any
    call and beside everything else; a newer launch of a run may give up the save under way, then the repack ends there.
    Raises an `IntegrityError` for a checkpoint that cannot be read; those that were rewritten before it stand.
    """
    names = [record.run for record in all_runs(repo)] if runs is None else list(kin(repo, runs))
    known = lists or PackLists(repo)
    found = [_settled(repo, name, known) for name in names]
    for _, error in (damage for run in found for damage in run.damaged):
        raise error
    wanted = frozenset(names if runs is None else runs)
    thin, sizes, users = _thin(repo, found, wanted)
    if not thin:
        return Repacked(packs=(), bytes_freed=0, bytes_waiting=0, bytes_written=0, rewritten=())
    work = _Repack(
        repo, thin, _donated(repo, found, thin, users), stop=stop, listener=listener, pack_bytes=pack_bytes
    )
    why = work.run(users)
    left = {key for held in users if held.checkpoint not in work.gone for key in held.packs}
    freed = tuple(sorted(key for key in thin if key not in left))
    written = sum(one.written for one in work.done)
    waiting = {key for run in found for one in run.waiting for key in one.packs}
    return Repacked(
        packs=freed,
        bytes_freed=sum(sizes[key] for key in freed) - written,
        bytes_waiting=sum(sizes[key] for key in freed if key in waiting),
        bytes_written=written,
        rewritten=tuple((one.old, one.new) for one in work.done),
        gave_up=why,
    )


def _settled(repo: Repository, run: str, lists: PackLists) -> Holdings:
    """What a run holds, once what an earlier repack left unfinished is ended."""
    found = holdings(repo, run, lists)
    return holdings(repo, run, lists) if give_up_unfinished(repo, found) else found


def _thin(
    repo: Repository, found: Sequence[Holdings], wanted: Collection[str]
) -> tuple[dict[str, int], dict[str, int], list[Held]]:
    """The packs to rewrite with the bytes needed of each, all packs' sizes, and who needs them, the oldest first."""
    held, packs = of_dead_saves(found)
    near = {key for one in held if one.checkpoint.run in wanted for key in one.packs} & packs
    if not near:
        return {}, {}, []
    sizes = pack_sizes(repo)
    live = live_bytes(used_chunks(repo, held, near & sizes.keys()))
    likely = [key for key, needed in live.items() if 2 * needed < sizes[key]]
    thin = {key: live[key] for key in sparse(data_bytes(repo, sizes, likely), live)}
    users = [one for one in held if not one.packs.isdisjoint(thin)]
    return thin, sizes, sorted(users, key=lambda one: _age(one.checkpoint))


def _age(checkpoint: Checkpoint) -> tuple[float, int, int, str, str]:
    return (
        checkpoint.created,
        checkpoint.attempt,
        checkpoint.step,
        checkpoint.run,
        str(checkpoint.save),
    )


def _donated(
    repo: Repository, found: Sequence[Holdings], thin: Collection[str], users: Sequence[Held]
) -> Donated:
    """What an earlier, interrupted repack has moved already: chunks of checkpoints that were written anew."""
    wanted = {place.digest for places in used_chunks(repo, users, thin).values() for place in places}
    donated: Donated = {}
    for held in (one for run in found for one in run.live if one.checkpoint.replaces):
        own = f"/{held.checkpoint.save}/"
        if not any(own in key for key in held.packs):
            continue
        for index in indexes_of(repo, held.checkpoint, read_manifest(repo, held.checkpoint)):
            for shard in index.shards:
                for chunk in shard.chunks:
                    key = index.packs[chunk.pack]
                    if chunk.digest in wanted and own in key and key not in thin:
                        spot = Spot(key=key, offset=chunk.offset, length=chunk.length)
                        donated.setdefault(chunk.digest, (spot, held.checkpoint))
    return donated


class _Repack:
    """The rewriting of one checkpoint after the other."""

    def __init__(
        self,
        repo: Repository,
        thin: dict[str, int],
        donated: Donated,
        *,
        stop: Callable[[], bool],
        listener: Listener,
        pack_bytes: int,
    ) -> None:
        self._repo = repo
        self._thin = thin
        self._donated = donated
        self._stop = stop
        self._listener = listener
        self._pack_bytes = pack_bytes
        self._bytes = 0
        self.done: list[Rewritten] = []
        self.gone: list[Checkpoint] = []

    def run(self, users: Sequence[Held]) -> str:
        """Rewrite them all; why it ended early, or nothing."""
        for held in users:
            if self._stop():
                return "asked to stop"
            try:
                self._one(held.checkpoint)
            except CheckpointPruned:
                self.gone.append(held.checkpoint)
            except (SaveAborted, Fenced) as error:
                return error.message
            except Stopped as stopped:
                return str(stopped)
        return ""

    def _one(self, old: Checkpoint) -> None:
        made = rewrite(
            self._repo,
            old,
            self._thin,
            self._donated,
            stop=self._stop,
            moved=self._moved,
            pack_bytes=self._pack_bytes,
        )
        take_over(self._repo, made.old, made.new)
        self.done.append(made)
        self.gone.append(old)

    def _moved(self, count: int) -> None:
        self._bytes += count
        self._listener(Transferred(what="repack", done=self._bytes, total=sum(self._thin.values())))
