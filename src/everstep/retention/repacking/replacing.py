"""One checkpoint takes another's place; and what an interrupted repack has left is brought to an end."""

from __future__ import annotations

from everstep.errors import CorruptObject, IntegrityError, ObjectNotFound, SaveFailed
from everstep.format.ids import SaveId, parse_save
from everstep.repository.catalogue import committed
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.decisions import aborted, decide
from everstep.repository.plans import read_plan
from everstep.repository.reading import read_manifest
from everstep.repository.replaced import standing
from everstep.repository.repository import Repository
from everstep.repository.tags import tags
from everstep.repository.tombs import bury, tomb
from everstep.repository.verified import mark_verified, verified
from everstep.retention.chunks import indexes_of
from everstep.retention.holdings import Holdings

__all__ = ["give_up_unfinished", "take_over"]

_WHY = "repacked"
_BY = "repack"


def take_over(repo: Repository, old: Checkpoint, new: Checkpoint) -> bool:
    """Prune ``old`` with a tomb that names ``new``; whether ``new`` has its place now.

    Record, manifest and indexes of ``new`` are read first; its packs were, before it was committed. When another tomb
    was first, ``new`` goes the same way: it is as pruned as the old one, or another has the place. It stays only where
    somebody has tagged it meanwhile. Raises an `IntegrityError` when ``new`` does not read as it was written: then it
    is pruned, and the old one stands.
    """
    try:
        _read_back(repo, new)
    except IntegrityError as error:
        bury(repo, new.run, new.save, why=f"damaged when it was read back: {error.message}")
        raise
    _carry_mark(repo, old, new)
    bury(repo, old.run, old.save, why=_WHY, replaced_by=new.save)
    found = tomb(repo, old.run, old.save)
    if found is None or found.replaced_by == str(new.save):
        return True  # without a tomb the old one was undeleted: both stand, and a list shows one
    if not _tagged(repo, new):
        other = parse_save(found.replaced_by) if found.replaced_by else None
        bury(repo, new.run, new.save, why=found.why, replaced_by=other)
    return False


def _read_back(repo: Repository, new: Checkpoint) -> None:
    """Record, manifest, each index: a store that damaged one of them must not cost the old checkpoint."""
    found = committed(repo, new.run, new.save)
    if found is None:
        raise CorruptObject(f"{new} reads as given up", run=new.run, save=str(new.save))
    for _ in indexes_of(repo, found, read_manifest(repo, found)):
        pass


def _carry_mark(repo: Repository, old: Checkpoint, new: Checkpoint) -> None:
    """Whoever verified the old one verified the new: what moved was verified twice, all else is the same objects."""
    marks = verified(repo, old.run)
    if old.save in marks and new.save not in marks and not mark_verified(repo, new.run, new.save, by=_BY):
        raise SaveFailed(
            f"{new} cannot take the place of a verified checkpoint: its mark could not be written",
            hint="the old one stands; the next repack goes on",
            run=new.run,
            save=str(new.save),
        )


def _tagged(repo: Repository, checkpoint: Checkpoint) -> bool:
    return any(
        tag.run == checkpoint.run and standing(repo, tag.run, parse_save(tag.save)) == checkpoint.save
        for tag in tags(repo)
    )


def give_up_unfinished(repo: Repository, found: Holdings) -> bool:
    """End what an interrupted repack of a run has left: abort its save, or finish a replacement. Whether it did any.

    Of two repacks at once the later one so ends the earlier one's save; that one gives up.
    """
    did = False
    for save in found.undecided:
        if _replaces(repo, found.run, save):
            decide(repo, aborted(repo, found.run, save, "another repack took over"), save)
            did = True
    live = {str(one.checkpoint.save): one.checkpoint for one in found.live}
    for one in found.live:
        new = one.checkpoint
        if (old := live.get(new.replaces)) is not None:
            take_over(repo, old, new)
            did = True
        elif new.replaces and _second(repo, new, live):
            did = True
    return did


def _replaces(repo: Repository, run: str, save: SaveId) -> bool:
    try:
        return bool(read_plan(repo, run, save).replaces)
    except ObjectNotFound:
        return False


def _second(repo: Repository, new: Checkpoint, live: dict[str, Checkpoint]) -> bool:
    """Prune one of two that replace the same checkpoint: the one that its tomb does not name."""
    found = tomb(repo, new.run, parse_save(new.replaces))
    if found is None or found.replaced_by in {"", str(new.save)} or found.replaced_by not in live:
        return False
    bury(repo, new.run, new.save, why=_WHY, replaced_by=parse_save(found.replaced_by))
    return True
