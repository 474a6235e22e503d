"""A checkpoint manager for torchtitan's trainer."""

from __future__ import annotations

import os
from collections.abc import Generator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, cast

import torch
from torchtitan.components.checkpointer import (
    DATALOADER,
    LR_SCHEDULER,
    MODEL,
    OPTIMIZER,
    TRAIN_STATE,
    BaseCheckpointManager,
    ModelWrapper,
)
from torchtitan.config import TORCH_DTYPE_MAP

from everstep.checkpointer.conductor import Checkpointer
from everstep.checkpointer.telling import log_event, log_trouble
from everstep.config import settings
from everstep.errors import RestoreMismatch
from everstep.events import Event, SaveStarted
from everstep.integrations.torchtitan.folders import export_huggingface, load_folder, load_huggingface
from everstep.integrations.torchtitan.settings import check, check_excluded, retention
from everstep.integrations.torchtitan.state import TrainerState

__all__ = ["CheckpointManager"]

_NO_END = 2**62
"""Where a trainer does not say how many steps it does."""


class CheckpointManager(BaseCheckpointManager):  # type: ignore[misc]  # torchtitan has no types for mypy
    """Saves and restores a torchtitan training in an everstep store.

    Give it in the place of torchtitan's own: ``Trainer.Config(checkpoint=CheckpointManager.Config(...))``.
    Every save is asynchronous, every checkpoint can be resumed, on other numbers of ranks and other parallelisms
    too. SIGTERM or SIGINT on any one rank makes all ranks save the same step and exit with code 75.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(BaseCheckpointManager.Config):  # type: ignore[misc]  # as above
        """torchtitan's settings, and the store's. Those that everstep cannot keep are refused by name."""

        store: str | None = None
        """URL or folder of the store. Default: EVERSTEP_STORE, else ``folder`` in the trainer's dump folder."""

        run: str | None = None
        """The training's name. Default: EVERSTEP_RUN, else "torchtitan" in a store in the dump folder."""

        keep_latest_k: int = 0
        """How many checkpoints stay, the newest; 0: all. For other rules there is ``keep``."""

        keep: str | None = None
        """The retention policy: "last 3, best 2 by loss, every 10000". Default: what ``keep_latest_k`` says."""

        last_save_model_only: bool = False
        """True with ``last_save_in_hf`` only; the checkpoint itself is whole in any case."""

        def __post_init__(self) -> None:
            """Check them. Raises `UsageError`, and ValueError for what torchtitan itself refuses."""
            BaseCheckpointManager.Config.__post_init__(self)
            check(self)

    def __init__(
        self,
        config: Config,
        *,
        dataloader: Any,
        model_parts: list[torch.nn.Module],
        optimizers: Any,
        lr_schedulers: Any,
        states: dict[str, Any],
        sd_adapter: Any,
        base_folder: str = "",
    ) -> None:
        self.enable: bool = config.enable
        self.save_future: Future[None] | None = None
        if not self.enable:
            return
        self._config = config
        self._adapter = sd_adapter
        self._folder = os.path.join(base_folder, config.folder)  # noqa: PTH118 - it may be a URL
        self._until = _steps(states.get(TRAIN_STATE))
        states.update(
            {
                MODEL: ModelWrapper(model_parts),
                OPTIMIZER: optimizers,
                DATALOADER: dataloader,
                LR_SCHEDULER: lr_schedulers,
            }
        )
        check_excluded(config.exclude_from_loading, states)
        self.states = states
        self._state = TrainerState(states)
        self._tell = (
            log_trouble if torch.distributed.is_initialized() and torch.distributed.get_rank() else log_event
        )
        self._started: int | None = None
        self._boundaries: Generator[int] | None = None
        store, run = _place(config, self._folder)
        self._checkpointer = Checkpointer(
            store, run, every=config.interval, keep=retention(config), listener=self._heard
        )

    def _load(self, step: int = -1) -> bool:
        """Restore the checkpoint of ``step``, or the newest (-1); else what the settings say to begin from.

        Returns whether anything was loaded. Raises `CheckpointNotFound`, `RestoreMismatch`.
        """
        reached = self._restored(None if step == -1 else step)
        return self._begin() if reached is None else True

    def _save(self, curr_step: int, last_step: bool = False) -> bool:  # noqa: FBT001, FBT002 - torchtitan's signature
        """Be at the boundary after ``curr_step`` steps: save when due.

        Raises SystemExit with code 75 when the training was told to stop and this step is durable.
        """
        if self._config.load_only:
            return False
        if self._boundaries is not None:
            self._to_next_boundary(self._boundaries)
        first = curr_step == 1 and self._config.enable_first_step_checkpoint
        due = self._boundaries is None and curr_step % self._config.interval == 0
        if (first or last_step or due) and self._started != curr_step:
            seed = self._boundaries is None and curr_step == 0
            self._checkpointer.save(curr_step, {MODEL: self._state[MODEL]} if seed else self._state)
        if last_step:
            self._checkpointer.wait()
            if self._config.last_save_in_hf:
                self._export(curr_step)
        return self._started == curr_step

    def _maybe_wait_for_staging(self) -> None:
        """Nothing to wait for: a save returns when its state is staged."""

    def _wait_for_saving(self) -> None:
        self._checkpointer.wait()
        self.save_future = None

    def _close(self) -> None:
        if self._boundaries is not None:
            self._boundaries.close()
            self._boundaries = None
        self._checkpointer.close()

    def _restored(self, step: int | None) -> int | None:
        """Restore; of a seed checkpoint, which is made before the first step and without ranks, the model alone."""
        skip = tuple(self._config.exclude_from_loading)
        try:
            return self._enter(step, skip)
        except RestoreMismatch:
            newest = self._checkpointer.latest()
            if (newest.step if step is None and newest is not None else step) != 0:
                raise
        return self._enter(step, tuple(name for name in self._state if name != MODEL))

    def _enter(self, step: int | None, skip: tuple[str, ...]) -> int | None:
        """Restore and be at the first boundary, or, for a trainer that only loads, restore."""
        if self._config.load_only:
            reached = self._checkpointer.restore(self._state, step=step, strict=not skip, skip=skip)
        else:
            loop = self._checkpointer.loop(
                self._state, until=self._until, step=step, strict=not skip, skip=skip
            )
            self._boundaries = cast("Generator[int]", loop)
            begins = next(self._boundaries, self._until)
            reached = None if self._checkpointer.coverage is None else begins
        if reached is None or OPTIMIZER in skip:
            self._state.forget_made()
        return reached

    def _begin(self) -> bool:
        """Load what the settings name for a run without checkpoints."""
        config = self._config
        if config.initial_load_in_hf:
            load_huggingface(
                self.states,
                self._adapter,
                config.initial_load_path,
                quantized=config.initial_load_in_hf_quantized,
            )
            return True
        if not config.initial_load_path:
            return False
        load_folder(self.states, config.initial_load_path, model_only=config.initial_load_model_only)
        if not (config.initial_load_model_only or config.load_only):
            self._go_on_from_here()
        return True

    def _go_on_from_here(self) -> None:
        """Make the state that was loaded the run's first checkpoint, and begin at its step."""
        step = int(self.states[TRAIN_STATE].state_dict()["step"])
        assert self._boundaries is not None
        self._boundaries.close()
        self._checkpointer.save(step, self._state)
        self._checkpointer.wait()
        self._enter(step, ())

    def _to_next_boundary(self, boundaries: Generator[int]) -> None:
        try:
            next(boundaries, None)
        except SystemExit:
            self.close()  # torchtitan closes on exceptions, and this is none
            raise

    def _export(self, step: int) -> None:
        folder = os.path.join(f"{self._folder}-hf", f"step-{step}")  # noqa: PTH118 - as torchtitan names it
        dtype = TORCH_DTYPE_MAP[self._config.export_dtype]
        export_huggingface(self.states, self._adapter, folder, dtype=dtype)

    def _heard(self, event: Event) -> None:
        if isinstance(event, SaveStarted):
            self._started = event.step
            self.save_future = Future()
        self._tell(event)


def _steps(trainer: Any) -> int:
    """How many steps a trainer does, as far as it says."""
    training = getattr(getattr(trainer, "config", None), "training", None)
    return int(getattr(training, "steps", _NO_END))


def _place(config: CheckpointManager.Config, folder: str) -> tuple[str, str | None]:
    """The store and the run: as given, as the environment says, or in the dump folder."""
    chosen = settings(store=config.store, run=config.run)
    if chosen.store is None:
        return folder, chosen.run or "torchtitan"
    return chosen.store, chosen.run
