"""A `StorageReader` of torch.distributed.checkpoint over a store of everstep."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from torch import distributed
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner
from torch.distributed.checkpoint.storage import StorageReader as TorchReader
from torch.futures import Future

from everstep.checkpointer.restoring import fetch
from everstep.config import settings
from everstep.errors import CheckpointNotFound, EverstepError
from everstep.events import Listener, silent
from everstep.format.ids import parse_run
from everstep.integrations.dcp.fetching import fetching
from everstep.integrations.dcp.metadata import Found, find_leaves, metadata_of
from everstep.integrations.dcp.where import parse_checkpoint_id, valid
from everstep.repository.catalogue import find, resolve
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.opening import open_repository
from everstep.repository.reading import read_manifest
from everstep.repository.repository import Repository
from everstep.store.opening import open_store
from everstep.store.protocol import Store

__all__ = ["StorageReader"]


class StorageReader(TorchReader):
    """Reads a checkpoint for ``dcp.load``, each chunk verified; nothing is written, no attempt is claimed.

    ``store`` is a URL, a folder or a `Store`, ``step`` None for the newest. ``checkpoint_id`` of ``dcp.load`` may
    name another: ``RUN@STEP`` or a step. All ranks read the same checkpoint: the coordinator's. Any
    checkpoint will do, also one of `everstep.Checkpointer`: its leaves have the names that DCP's flattening
    gives. No pickle is read: objects are decoded from the list of entries.
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | Store,
        run: str,
        step: int | None = None,
        *,
        workers: int | None = None,
        listener: Listener = silent,
    ) -> None:
        super().__init__()
        self._store: str | Store = os.fspath(store) if isinstance(store, str | os.PathLike) else store
        self.run: str = parse_run(run)
        self.step = step
        self._workers = workers
        self._listener = listener
        self._repository: Repository | None = None
        self._chosen: Checkpoint | None = None
        self._failed: EverstepError | None = None
        self._leaves: dict[str, Found] = {}

    @property
    def checkpoint_id(self) -> str:
        """The checkpoint that is read: ``RUN@STEP``, or the run for its newest."""
        return self.run if self.step is None else f"{self.run}@{self.step}"

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint that was read last."""
        return self._chosen

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether it names a checkpoint."""
        return valid(checkpoint_id)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begin anew, at another checkpoint when one is named."""
        if checkpoint_id is not None:
            run, self.step = parse_checkpoint_id(checkpoint_id)
            self.run = run or self.run
        self._chosen = self._failed = None

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:  # noqa: ARG002 - DCP looks for the name kwargs
        """What the checkpoint holds, from its manifest. Raises `NotFound`, `IntegrityError`.

        After an error DCP asks again for what a rank saved for itself, and if it got that it would leave the other
        ranks alone: so the answer to that is the same error.
        """
        if kwargs.get("rank") is not None:
            raise self._failed or CheckpointNotFound(
                f"{self.checkpoint_id} has no metadata of single ranks", run=self.run, step=self.step
            )
        try:
            self._take(find(self._opened(), self.run, self.step))
        except EverstepError as error:
            self._failed = error
            raise
        return metadata_of(self._leaves, checkpoint_id=str(self._chosen))

    def set_up_storage_reader(
        self,
        metadata: Metadata,
        is_coordinator: bool,  # noqa: FBT001 - DCP's signature
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Nothing to do: `read_metadata` came before."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Tell the coordinator which checkpoint this rank has looked at."""
        assert self._chosen is not None
        return dataclasses.replace(plan, storage_data=str(self._chosen.save))

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """All ranks read the coordinator's checkpoint, also when a newer one was committed meanwhile."""
        assert self._chosen is not None
        return [dataclasses.replace(plan, storage_data=str(self._chosen.save)) for plan in plans]

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Fetch what the plan asks for, verify it, and give it to the planner.

        After an error the content of the tensors is undefined.
        """
        assert self._chosen is not None
        if plan.storage_data is not None and plan.storage_data != str(self._chosen.save):
            self._take(resolve(self._opened(), f"{self.run}@{plan.storage_data}"))
        chosen = self._chosen
        told = settings(workers=self._workers)
        fetch(
            self._opened(),
            chosen,
            lambda _entries: fetching(plan, planner, self._leaves),
            budget_bytes=told.budget_bytes,
            workers=told.workers,
            listener=self._listener,
        )
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _opened(self) -> Repository:
        if self._repository is None:
            store = self._store
            opened = open_store(store, listener=self._listener) if isinstance(store, str) else store
            self._repository = open_repository(opened, create=False)
        return self._repository

    def _take(self, chosen: Checkpoint) -> None:
        manifest = read_manifest(self._opened(), chosen)
        self._chosen, self._leaves = chosen, find_leaves(manifest.entries, _rank())


def _rank() -> int:
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0
