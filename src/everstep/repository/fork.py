"""A new run that begins at a checkpoint of another: no bytes are copied."""

from __future__ import annotations

from everstep.errors import CheckpointPruned, UsageError
from everstep.format.ids import parse_save
from everstep.format.manifest import IndexRef
from everstep.format.outline import Outline
from everstep.format.records import Parent
from everstep.repository.attempts import claim
from everstep.repository.catalogue import newest
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.parallel import gather
from everstep.repository.reading import by_path, read_index, read_manifest
from everstep.repository.replaced import standing
from everstep.repository.repository import Repository
from everstep.repository.retitle import retitled
from everstep.repository.runs import ensure_run, find_run
from everstep.repository.saves import abort, begin, commit, write_index

__all__ = ["fork"]

_WAIT_S = 60.0


def fork(repo: Repository, checkpoint: Checkpoint, new_run: str, *, owner: str = "fork") -> Checkpoint:
    """Begin ``new_run`` with this checkpoint, at the same step. Returns the new run's first checkpoint.

    Its indexes are made again for the new run and refer to the packs that are there; its own manifest
    lists them, so it lives on when the parent is pruned. It is an ordinary save with the parent as its
    base: a crash in between leaves what any crash leaves, and the same call again goes on. Raises
    `UsageError` when the run exists and is something else, `CheckpointPruned` when the parent is.
    """
    manifest = read_manifest(repo, checkpoint)
    entries = by_path(manifest.entries)
    parent = checkpoint.parent
    keep = find_run(repo, checkpoint.run).keep
    recorded = ensure_run(repo, new_run, keep=keep, parent=parent).parent
    if recorded is None or not _leads_to(repo, recorded, parent):
        raise _occupied(checkpoint, new_run)
    parent = recorded
    if (made := _made_before(repo, checkpoint, new_run, parent)) is not None:
        return made
    attempt = claim(repo, new_run, owner=owner, world=checkpoint.world)
    if (made := _made_before(repo, checkpoint, new_run, parent)) is not None:
        return made  # the claim has finished what an earlier call left
    save = begin(repo, attempt, checkpoint.step, bases=(checkpoint,), forked_from=parent)
    if not save.bases:
        abort(repo, save, f"{checkpoint} was pruned")
        raise CheckpointPruned(
            f"{checkpoint} was pruned and cannot be forked", run=checkpoint.run, step=checkpoint.step
        )

    def remake(ref: IndexRef) -> Outline:
        index = read_index(repo, checkpoint, ref, entries)
        again = retitled(index, ref, run=new_run, save=str(save.id), stored_bytes=0)
        return write_index(repo, save, again, entries=entries)

    return commit(repo, save, gather(remake, manifest.indexes), timeout_s=_WAIT_S)


def _leads_to(repo: Repository, recorded: Parent, parent: Parent) -> bool:
    """Whether a run's recorded parent is this checkpoint, or one whose place it took."""
    if recorded == parent or recorded.run != parent.run:
        return recorded == parent
    return str(standing(repo, recorded.run, parse_save(recorded.save))) == parent.save


def _made_before(repo: Repository, checkpoint: Checkpoint, new_run: str, parent: Parent) -> Checkpoint | None:
    """The fork, when it is complete and nothing was saved after it."""
    found = newest(repo, new_run)
    if found is not None and found.forked_from != parent:
        raise _occupied(checkpoint, new_run)
    return found


def _occupied(checkpoint: Checkpoint, new_run: str) -> UsageError:
    return UsageError(
        f"a run named {new_run!r} exists, and is not a fresh fork of {checkpoint}",
        hint="choose another name for the fork",
        run=new_run,
    )
