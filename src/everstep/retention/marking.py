"""Which packs checkpoints refer to, and how large these are: what never changes is asked once and remembered."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from everstep.errors import IntegrityError, MissingObject, ObjectNotFound
from everstep.format.ids import SaveId
from everstep.format.manifest import IndexRef, Manifest
from everstep.format.records import CommitRecord, TombRecord
from everstep.repository.checkpoint import Checkpoint, checkpoint_of
from everstep.repository.decisions import read_decision
from everstep.repository.headers import size_of
from everstep.repository.keys import tomb_key
from everstep.repository.objects import read_record
from everstep.repository.parallel import gather
from everstep.repository.reading import load_manifest
from everstep.repository.repository import Repository
from everstep.repository.tombs import Grave

__all__ = ["PackLists", "Parts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The objects that a manifest names: packs, its own saves' and others', and the indexes of its save."""

    packs: frozenset[str]
    indexes: tuple[IndexRef, ...]


class PackLists:
    """Commit records, manifests' packs and packs' sizes of one repository, each read once.

    Records and manifests are write-once, so nothing that is remembered can be wrong. May be used by several threads.
    ``tidied`` are the runs whose folders were cleaned of what is no save's.
    """

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._lock = threading.Lock()
        self._records: dict[tuple[str, SaveId], CommitRecord] = {}
        self._parts: dict[tuple[str, SaveId], Parts] = {}
        self._sizes: dict[str, int] = {}
        self._replaced: dict[tuple[str, SaveId, int], bool] = {}
        self._names: dict[str, str] = {}
        self._left: set[tuple[str, SaveId]] = set()
        self._clean: dict[str, frozenset[SaveId]] = {}
        self.tidied: set[str] = set()

    def decision(self, run: str, save: SaveId) -> CommitRecord:
        """The commit record of a decided save. Raises `ObjectNotFound`, or an `IntegrityError` naming its key."""
        found = self._records.get((run, save))
        if found is None:
            found = read_decision(self._repo, run, save)
            with self._lock:
                self._records[run, save] = found
        return found

    def committed(self, run: str, saves: Iterable[SaveId]) -> list[Checkpoint]:
        """Those of these decided saves that were committed, in order, pruned ones too; without tags."""
        wanted = list(saves)
        records = gather(lambda save: self.decision(run, save), wanted)
        return [
            checkpoint_of(record, run, save)
            for record, save in zip(records, wanted, strict=True)
            if record.state == "committed"
        ]

    def parts(self, checkpoint: Checkpoint) -> Parts:
        """What a checkpoint's manifest names.

        Raises an `IntegrityError` naming the manifest when it is damaged, `MissingObject` also when it is gone,
        whether or not the checkpoint was pruned.
        """
        found = self._parts.get((checkpoint.run, checkpoint.save))
        return found if found is not None else self._remember(checkpoint, self.manifest_now(checkpoint))

    def manifest_now(self, checkpoint: Checkpoint) -> Manifest:
        """The manifest, read from the store whatever is remembered. Raises as `parts`."""
        try:
            manifest = load_manifest(self._repo, checkpoint)
        except ObjectNotFound as error:
            raise MissingObject(
                f"the manifest of {checkpoint} is gone: {error.message}",
                hint="restore the store from a copy, or give this checkpoint up with: everstep prune",
                run=checkpoint.run,
                step=checkpoint.step,
                **error.fields,
            ) from error
        self._remember(checkpoint, manifest)
        return manifest

    def _remember(self, checkpoint: Checkpoint, manifest: Manifest) -> Parts:
        with self._lock:
            packs = frozenset(self._names.setdefault(key, key) for key in manifest.packs)
            found = Parts(packs=packs, indexes=manifest.indexes)
            self._parts[checkpoint.run, checkpoint.save] = found
        return found

    def packs(self, checkpoint: Checkpoint) -> frozenset[str]:
        """The keys of all packs that a checkpoint needs, its own and others'."""
        return self.parts(checkpoint).packs

    def sizes(self, packs: Iterable[str]) -> dict[str, int]:
        """The bytes of packs, by key; one list for each that is not known yet. One that is gone has none."""
        wanted = sorted(packs)
        unknown = [key for key in wanted if key not in self._sizes]
        for key, size in zip(
            unknown, gather(lambda key: size_of(self._repo.store, key), unknown), strict=True
        ):
            if size is not None:
                self._sizes[key] = size
        return {key: self._sizes[key] for key in wanted if key in self._sizes}

    def known_sizes(self, packs: Iterable[str]) -> dict[str, int]:
        """The bytes of those packs whose size was asked or learnt before; no request."""
        return {key: self._sizes[key] for key in packs if key in self._sizes}

    def replaced(self, grave: Grave) -> bool:
        """Whether a tomb says that another save has the place; one that cannot be read does not. One request."""
        found = self._replaced.get((grave.run, grave.save, grave.number))
        if found is None:
            try:
                record = read_record(
                    self._repo.store, tomb_key(grave.run, grave.save, grave.number), TombRecord
                )
                found = bool(record.replaced_by)
            except (IntegrityError, ObjectNotFound):
                found = False
            with self._lock:
                self._replaced[grave.run, grave.save, grave.number] = found
        return found

    def learn_size(self, key: str, size: int) -> None:
        """A pack's bytes, as a list has told them."""
        self._sizes[key] = size

    def leave(self, place: tuple[str, SaveId]) -> None:
        """Remember a dead save of which a sweep of its run can delete no more: only one of the whole store can."""
        self._left.add(place)

    def is_left(self, place: tuple[str, SaveId]) -> bool:
        """Whether `leave` was told of it."""
        return place in self._left

    def clean(self, run: str, dead: Collection[SaveId]) -> None:
        """Remember that a sweep has left nothing of these dead saves of a run."""
        self._clean[run] = frozenset(dead)

    def is_clean(self, run: str, dead: Collection[SaveId]) -> bool:
        """Whether `clean` was told of all these."""
        return run in self._clean and self._clean[run].issuperset(dead)

    def forget(self, run: str, save: SaveId) -> None:
        """What a swept save had is of no use any more."""
        with self._lock:
            parts = self._parts.pop((run, save), None)
            if parts is not None:
                needed = frozenset().union(*(other.packs for other in self._parts.values()))
                for key in parts.packs - needed:
                    self._names.pop(key, None)
                    self._sizes.pop(key, None)
