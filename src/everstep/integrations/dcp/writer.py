"""A `StorageWriter` of torch.distributed.checkpoint over a store of everstep."""

from __future__ import annotations

import dataclasses
import os
import uuid
from collections.abc import Mapping
from typing import Any

import torch
from torch import distributed
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageWriter as TorchWriter
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from everstep.config import settings
from everstep.errors import UsageError
from everstep.events import Listener, silent
from everstep.format.ids import parse_run
from everstep.integrations.dcp.apart import begin_apart, end_apart
from everstep.integrations.dcp.handing import (
    Begun,
    Joining,
    Told,
    begun_of,
    result_of,
    told_by,
)
from everstep.integrations.dcp.rank_part import Part, commit_parts, join_save, plan_digest, write_part
from everstep.integrations.dcp.session import Session, give_up, session_of
from everstep.integrations.dcp.stager import Stager
from everstep.integrations.dcp.where import parse_checkpoint_id, valid
from everstep.ranks import Ranks
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.saves import announce, begin
from everstep.store.protocol import Store

__all__ = ["StorageWriter"]

_COMMIT_TIMEOUT_S = 600.0


class StorageWriter(TorchWriter):
    """Writes checkpoints for ``dcp.save`` and ``dcp.async_save``: each is committed whole, or not at all.

    ``store`` is a URL, a folder or a `Store`; ``run`` the training's name; ``step`` that of the next save. Use
    one writer for a whole training: set ``writer.step``, or give ``checkpoint_id`` (a step, or ``RUN@STEP``). Its
    first save claims an attempt, which fences older writers of the run; a new writer claims a new one.
    Steps of one writer count upwards. Nothing is ever overwritten.

    ``metrics`` and ``config`` (plain values) go into the checkpoints. The writer is a stager too, so that
    ``async_save`` copies into memory that is kept; `close` gives it back. Objects that are no tensors are
    stored as values, never as pickles; `UnsupportedLeaf` names what cannot be.
    """

    _synchronize_after_execute = False

    def __init__(
        self,
        store: str | os.PathLike[str] | Store,
        run: str,
        step: int | None = None,
        *,
        metrics: Mapping[str, object] | None = None,
        config: object = None,
        workers: int | None = None,
        commit_timeout_s: float = _COMMIT_TIMEOUT_S,
        listener: Listener = silent,
    ) -> None:
        super().__init__()
        self._store: str | Store = os.fspath(store) if isinstance(store, str | os.PathLike) else store
        self.run: str = parse_run(run)
        self.step = step
        self.metrics: dict[str, object] = dict(metrics or {})
        self.config = config
        self._workers = workers or settings().workers
        self._commit_timeout_s = commit_timeout_s
        self._listener = listener
        self._key = uuid.uuid4().hex
        self._session: Session | None = None
        self._copied = False
        self._stager: Stager | None = None
        self._coordinator = True
        self._use_collectives = True
        self._number = 0
        self._part: Part | None = None
        self._begun: Begun | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Without what belongs to this process: ``async_save`` sends copies to a process of its own."""
        kept = dict(self.__dict__)
        kept.update(_session=None, _copied=True, _stager=None, _part=None, _begun=None)
        return kept

    @property
    def checkpoint_id(self) -> str:
        """The checkpoint of the next save, ``RUN@STEP``."""
        return f"{self.run}@{self.step}"

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint that this process committed last: on the coordinator, once ``save`` has returned."""
        return None if self._session is None else self._session.last

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether it names a checkpoint."""
        return valid(checkpoint_id)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """A new save begins, of the checkpoint named."""
        if checkpoint_id is not None:
            run, self.step = parse_checkpoint_id(checkpoint_id)
            self.run = run or self.run
        self._part = None

    def storage_meta(self) -> StorageMeta:
        """What planners are told."""
        return StorageMeta(checkpoint_id=self.checkpoint_id, save_id=self._key)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002, FBT001 - DCP's signature; it looks for the name kwargs
        """Take one's place among the ranks."""
        self._coordinator = is_coordinator
        self._use_collectives = bool(kwargs.get("use_collectives", True))
        self._number = int(kwargs.get("rank") or 0)
        self._part = self._begun = None

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Tell the coordinator who this is."""
        return dataclasses.replace(plan, storage_data=Joining(rank=_rank(), coordinator=self._coordinator))

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """On the coordinator: claim the attempt if this is the first save, begin the save, tell all ranks.

        Raises `Fenced` when a newer writer owns the run, `UsageError` for a step that is not above the last one.
        """
        if self.step is None:
            raise UsageError("no step is named", hint="set writer.step, or give checkpoint_id=")
        session, step = self._opened(), self.step
        if not self._use_collectives and _world() > 1:
            world = _world()
            self._begun = begin_apart(
                session,
                self._number,
                world,
                lambda: _begin(session, self.run, step, {rank: rank for rank in range(world)}),
                run=self.run,
                timeout_s=self._commit_timeout_s,
            )
            return [dataclasses.replace(plan, storage_data=self._begun) for plan in plans]
        joining = self._joining(plans)
        at = next(n for n, one in enumerate(joining) if one.coordinator)
        numbers = [(n - at) % len(plans) for n in range(len(plans))]
        ranks = {one.rank: number for one, number in zip(joining, numbers, strict=True)}
        begun = _begin(session, self.run, step, ranks)
        return [
            dataclasses.replace(plan, storage_data=dataclasses.replace(begun, rank=number))
            for plan, number in zip(plans, numbers, strict=True)
        ]

    def _joining(self, plans: list[SavePlan]) -> list[Joining]:
        """Who the ranks are; those whose plans DCP has cached are who they were."""
        held = self._opened().joining if len(self._opened().joining) == len(plans) else ()
        found = [
            plan.storage_data
            if isinstance(plan.storage_data, Joining)
            else (held[n] if held else Joining(rank=n, coordinator=n == self._number))
            for n, plan in enumerate(plans)
        ]
        self._opened().joining = tuple(found)
        return found

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Store this rank's part: packs, and its index. When it fails the whole save is given up."""
        session = self._opened()
        begun = self._begun or begun_of(plan)
        cached = bool(getattr(planner, "_enable_plan_caching", False))
        save = join_save(session, begun, step=self.step or 0, cached=cached)
        try:
            part = write_part(
                session, save, begun, plan, planner, workers=self._workers, listener=self._listener
            )
        except BaseException as error:
            give_up(session.repository, save, f"rank {begun.rank} failed: {type(error).__name__}: {error}")
            if session.ranks is not None and begun.apart:
                self._end(session.ranks, error, Metadata({}))
            raise
        self._let_go(plan, planner)
        self._part = part
        sized = zip(plan.items, part.items.sizes, strict=True)
        results = [
            WriteResult(index=item.index, size_in_bytes=size, storage_data=None) for item, size in sized
        ]
        done: Future[list[WriteResult]] = Future()
        done.set_result([*results, result_of(part.told)])
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """On the coordinator, all ranks being done: write its index with all leaves, and commit."""
        session, part = self._opened(), self._part
        assert part is not None
        try:
            if session.ranks is not None and self._begun is not None:
                checkpoint = self._end(session.ranks, part.told, metadata)
            else:
                checkpoint = self._commit(told_by(results), metadata)
            session.committed(checkpoint, part.save, part.known)
        except BaseException as error:
            session.give_up(f"it could not be committed: {type(error).__name__}: {error}")
            raise
        finally:
            self._part = None
        metadata.storage_meta = self.storage_meta()

    def _commit(self, told: list[Told], metadata: Metadata) -> Checkpoint:
        assert self._part is not None
        return commit_parts(
            self._opened(),
            self._part,
            told,
            order=None if metadata.planner_data is None else list(metadata.planner_data),
            metrics=self.metrics,
            config=self.config,
            timeout_s=self._commit_timeout_s,
        )

    def _end(self, ranks: Ranks, mine: Told | BaseException, metadata: Metadata) -> Checkpoint:
        return end_apart(
            ranks, mine, lambda told: self._commit(told, metadata), timeout_s=self._commit_timeout_s
        )

    @property
    def should_synchronize_after_execute(self) -> bool:
        """Never: staging is complete when `stage` returns."""
        return self._synchronize_after_execute

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """A copy of the state dict in kept memory; ``async_save`` asks for it when no stager is given."""
        if self._stager is None:
            self._stager = Stager()
        return self._stager.stage(state_dict)

    def synchronize_staging(self) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        """Give up a save that was begun and not finished, and give the memory back."""
        if self._stager is not None:
            self._stager.close()
        if self._session is not None:
            self._session.give_up("the writer was closed")
            self._session.close()

    def _let_go(self, plan: SavePlan, planner: SavePlanner) -> None:
        """What this writer staged for the save is needed no more."""
        if self._stager is not None:
            for item in plan.items:
                if item.tensor_data is not None and item.tensor_data.chunk.sizes.numel():
                    found = planner.resolve_data(item)
                    if isinstance(found, torch.Tensor):
                        self._stager.stored(found)
                    return

    def _opened(self) -> Session:
        if self._session is None:
            self._session = session_of(self._key, self._store, self._listener, shared=self._copied)
        return self._session


def _begin(session: Session, run: str, step: int, ranks: Mapping[int, int]) -> Begun:
    """The attempt claimed and the save begun, as rank 0 is told of it."""
    attempt = session.claimed(run, len(ranks))
    session.check_step(run, step)
    bases = () if session.last is None else (session.last,)
    save = session.open = begin(session.repository, attempt, step, bases=bases)
    announced = announce(save, plan_digest=plan_digest(save.id))
    return Begun(attempt=attempt, announced=announced, bases=save.bases, rank=0, ranks=ranks)


def _rank() -> int:
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0


def _world() -> int:
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1
