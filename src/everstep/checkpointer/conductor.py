"""The conductor of a training's checkpoints: restore, save, loop."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from everstep.cadence import parse_every
from everstep.checkpointer.among_ranks import AmongRanks
from everstep.checkpointer.background import Background
from everstep.checkpointer.boundaries import Alone, Boundaries
from everstep.checkpointer.choosing import restore_together
from everstep.checkpointer.launch import Launch
from everstep.checkpointer.pace import Pace
from everstep.checkpointer.pending import Pending
from everstep.checkpointer.restoring import check_on_corrupt
from everstep.checkpointer.saving import Base, Work, known_chunks, run
from everstep.checkpointer.signals import StopSignals
from everstep.checkpointer.stepping import steps
from everstep.checkpointer.telling import log_event, log_trouble
from everstep.config import process_settings, settings
from everstep.errors import UsageError
from everstep.events import (
    Listener,
    PartsResized,
    SaveCommitted,
    SaveFailing,
    SaveSkipped,
    SaveStaged,
    SaveStarted,
)
from everstep.format.index import Meta
from everstep.plan.save import plan_save
from everstep.progress import ProgressFile
from everstep.repository.attempts import Attempt
from everstep.repository.catalogue import checkpoints, newest
from everstep.repository.checkpoint import Checkpoint
from everstep.state.conversion import flatten, match
from everstep.state.describe import encode_config, encode_metrics, hold
from everstep.state.flat import Coverage, Flat
from everstep.state.pinning import pin
from everstep.store.protocol import Store
from everstep.transfer.alike import Alike, held_alike, sampled_alike
from everstep.transfer.memory import Arena
from everstep.transfer.pacer import Pacer
from everstep.transfer.stage import stage

if TYPE_CHECKING:
    from everstep.state.architecture import Architecture

__all__ = ["Checkpointer"]

State = MutableMapping[str, Any]

_HEADERS_BYTES, _HEADER_BYTES = 2**22, 2**9
"""Room for packs' headers: at least, and for each leaf."""


class Checkpointer:
    """Saves and restores one run's training state.

    ``store`` is a URL, a folder or a `Store` (default: EVERSTEP_STORE), ``run`` the training's name
    (default: EVERSTEP_RUN). ``every`` is when `loop` saves: steps (500) or a duration ("10m"). ``keep`` is
    the retention policy, stored with the run. ``on_corrupt`` is "previous" (fall back, loudly, to the
    newest checkpoint that verifies) or "fail". ``busy`` says what `save` does while another save is
    under way: "wait" or "skip". ``config`` (plain values) and ``architecture`` go into each checkpoint.
    ``check_finite`` marks checkpoints whose tensors hold NaN or infinities. Before ranks
    commit, the first bytes of replicated parameters are compared, and with ``check_replicas`` all bytes that are
    replicated (training stands still while they are hashed): a save whose replicas differ is refused, naming leaf and
    ranks (`DivergentReplicas`). ``listener`` gets the events
    of `everstep.events`, in the thread where they happen; by default they become log lines, on ranks other than
    the first only those of trouble.

    One process uses one Checkpointer for a run; methods are called from one thread. On several ranks every rank
    makes its own, with the same arguments, and all call the same methods in the same order.
    """

    coverage: Coverage | None = None
    """What the last `restore` found."""

    def __init__(
        self,
        store: str | Store | None = None,
        run: str | None = None,
        *,
        every: int | str | timedelta | None = None,
        keep: str = "",
        on_corrupt: str | None = None,
        busy: Literal["wait", "skip"] = "wait",
        config: object = None,
        architecture: Architecture | None = None,
        check_finite: bool = False,
        check_replicas: bool = False,
        listener: Listener | None = None,
    ) -> None:
        chosen = settings(store=store if isinstance(store, str) else None, run=run, on_corrupt=on_corrupt)
        if busy not in {"wait", "skip"}:
            raise UsageError(f"busy={busy!r} is neither 'wait' nor 'skip'", hint="'wait' never loses a save")
        where = store if store is not None else chosen.store
        if where is None:
            raise UsageError("no store is given", hint="pass store=, or set EVERSTEP_STORE")
        if chosen.run is None:
            raise UsageError("no run is named", hint="pass run=, or set EVERSTEP_RUN")
        self._cadence = parse_every(every)
        self._on_corrupt = check_on_corrupt(chosen.on_corrupt)
        self._busy = busy
        self._config = encode_config(config)
        self._architecture = architecture
        self._check_finite = check_finite
        self._check_replicas = check_replicas
        self._settings = chosen
        self._launch = Launch(where, chosen.run, keep=keep, listener=listener or log_event)
        self._listener = listener or (log_event if self._launch.rank == 0 else log_trouble)
        self._arena = Arena(pin=pin)
        self._background = Background()
        self._base: Base | None = None
        self._metrics: dict[str, object] = {}
        self._pace = Pace()
        self._saves = 0
        self._last_step: int | None = None
        self._pacer: Pacer | None = None
        told = process_settings().progress
        self._progress = ProgressFile(told) if told and self._launch.rank == 0 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._hurry()
            self._launch.leave_soon()
            self._background.settle()

    def restore(
        self,
        state: State,
        *,
        step: int | None = None,
        strict: bool = True,
        skip: Sequence[str] = (),
    ) -> int | None:
        """Bring the state back from the newest checkpoint (or that of ``step``), in place.

        Returns the checkpoint's step, or None when the run has none yet: first run and resume are the
        same code. Claims an attempt, which fences every older one of the run; after a save of this launch a
        new one, so that what is saved from here on is newer than all before. ``strict=False`` with
        ``skip`` (patterns of paths) leaves the named leaves as they are. Raises `RestoreMismatch` before
        anything is changed, `IntegrityError` when nothing verifies; after an error while bytes are read,
        the state's content is undefined.
        """
        self._background.wait()
        self._background.forget()
        self._launch.attempt(afresh=self._last_step is not None)
        self._last_step = None

        restored = restore_together(
            self._launch,
            lambda entries: match(
                state,
                entries,
                strict=strict,
                skip=skip,
                rank=self._launch.rank,
                world=self._launch.world,
            ),
            step=step,
            on_corrupt=self._on_corrupt,
            budget_bytes=self._settings.budget_bytes,
            workers=self._settings.workers,
            listener=self._listener,
        )
        reached = None if restored is None else restored.checkpoint.step
        if self._progress:
            self._progress.resumed(reached)
            self._progress.step(reached or 0)
        if restored is not None:
            self.coverage = restored.coverage
            if restored.coverage.resized:
                self._listener(
                    PartsResized(
                        run=self._launch.run,
                        step=restored.checkpoint.step,
                        paths=restored.coverage.resized,
                        saved_world=restored.checkpoint.world,
                        world=self._launch.world,
                    )
                )
            self._metrics = dict(restored.checkpoint.metrics)
            self._base = Base(checkpoint=restored.checkpoint, known=known_chunks(restored.indexes))
        self.prepare(state)
        return reached

    def prepare(self, state: State) -> None:
        """Make staging memory for a state of this size ready, in the background."""
        rank, world = self._launch.rank, self._launch.world
        flat = flatten(state, rank=rank, world=world)
        plan = plan_save(flat.pieces, rank=rank, world=world, entries=flat.entries)
        headers = _HEADERS_BYTES + _HEADER_BYTES * len(plan.writes)
        self._arena.prepare(headers + plan.nbytes)

    def save(self, step: int, state: State, *, metrics: Mapping[str, object] | None = None) -> Pending:
        """Save the state as the checkpoint of ``step``; returns when it is staged and may change again.

        The rest goes on in the background: `Pending.wait` waits until it is durable. ``metrics`` are logged
        as by `log`. Raises the error of the save before, if nobody was told of it; `UnsupportedLeaf`
        for what cannot be saved, `UsageError` for a step that is not above the last one saved.
        """
        self._launch.check_process()
        self._background.raise_error()
        if self._busy == "skip" and self._skips():
            self._listener(SaveSkipped(run=self._launch.run, step=step))
            return Pending(step, skipped=True)
        if self._background.busy:
            self.wait()
        began = time.monotonic()
        attempt = self._launch.attempt()
        self._listener(SaveStarted(run=attempt.run, step=step))
        self._metrics.update(metrics or {})
        topic = self._launch.next_topic("save")
        try:
            self._check_step(step)
            work = self._staged(step, state, attempt, topic, began)
        except BaseException as error:
            self._launch.together.fail(topic, error)
            raise
        try:
            stall_s = time.monotonic() - began
            self._listener(SaveStaged(run=attempt.run, step=step, bytes=work.staged.nbytes, stall_s=stall_s))
            self._saves += 1
            self._last_step = step
            if self._progress:
                self._progress.begun(self._saves)
            self._pacer = work.pacer
            return self._background.start(step, lambda: self._finish(work, began))
        except BaseException:
            work.staged.release()
            raise

    def _staged(self, step: int, state: State, attempt: Attempt, topic: str, began: float) -> Work:
        """The state copied, and all that the background needs beside it."""
        rank, world = self._launch.rank, self._launch.world
        meta = Meta(
            metrics=encode_metrics(self._metrics),
            config=self._config,
            architecture=None if self._architecture is None else self._architecture.record(),
        )
        flat = flatten(state, rank=rank, world=world)
        plan = plan_save(flat.pieces, rank=rank, world=world, entries=flat.entries)
        alike = self._alike(flat)
        staged = stage(flat, plan, self._arena)
        return Work(
            repository=self._launch.repository,
            together=self._launch.together,
            topic=topic,
            attempt=attempt,
            step=step,
            plan=plan.digest,
            entries=flat.entries,
            alike=alike,
            staged=staged,
            meta=meta,
            base=self._base,
            pacer=self._pace.pacer(staged.nbytes, cadence=self._cadence, now=began),
            workers=self._settings.workers,
            listener=self._listener,
            check_finite=self._check_finite,
        )

    def _alike(self, flat: Flat) -> Alike | None:
        """What is compared between ranks before a commit: all replicas if the user asked for it, else a sample."""
        if self._launch.world == 1:
            return None
        if self._check_replicas:
            return held_alike(flat, workers=self._settings.workers)
        return sampled_alike(flat)

    def _skips(self) -> bool:
        """Whether this save is left out: as rank 0 finds it, for all ranks."""
        busy = self._launch.together.from_first(
            self._launch.next_topic("skip"), lambda: b"busy" if self._background.busy else b""
        )
        return bool(busy)

    def _check_step(self, step: int) -> None:
        last = self._background.last_step
        if last is not None and step <= last:
            raise UsageError(
                f"step {step} is not above step {last}, which this launch saved",
                hint="count steps upwards; to go back, restore(state, step=...) first, then save",
                step=step,
            )

    def _finish(self, work: Work, began: float) -> Checkpoint:
        try:
            self._base = run(work)
        except BaseException as error:
            self._listener(SaveFailing(run=work.attempt.run, step=work.step, error=str(error)))
            raise
        checkpoint = self._base.checkpoint
        if self._progress:
            self._progress.committed(self._saves)
        self._listener(
            SaveCommitted(
                run=checkpoint.run,
                step=checkpoint.step,
                bytes=checkpoint.bytes,
                stored_bytes=checkpoint.stored_bytes,
                durable_s=time.monotonic() - began,
            )
        )
        return checkpoint

    def loop(
        self,
        state: State,
        *,
        until: int,
        step: int | None = None,
        strict: bool = True,
        skip: Sequence[str] = (),
    ) -> Iterator[int]:
        """Restore, then yield each step to do up to ``until``, saving when due, at the end, and on a notice.

        The body of step ``s`` done, the state is that of checkpoint ``s + 1``. On SIGTERM or SIGINT the
        next step boundary saves, waits until it is durable, and exits the process with code 75. Errors
        of a save in the background are raised at the next boundary. ``step``, ``strict`` and ``skip`` are
        those of `restore`.
        """
        return steps(
            self,
            state,
            restore=lambda: self.restore(state, step=step, strict=strict, skip=skip),
            until=until,
            boundaries=self._boundaries,
            pace=self._pace,
            progress=self._progress,
        )

    def _boundaries(self, signals: StopSignals) -> Boundaries:
        if self._launch.world == 1:
            return Alone(signals, self._cadence)
        return AmongRanks(self._launch.together, signals, self._cadence)

    def log(self, **metrics: object) -> None:
        """Remember metrics (numbers, 0-d tensors, text) for the checkpoints to come; the newest value wins.

        A tensor is read when a save is made, so that logging never waits for a device. What a checkpoint
        has logged is there again after its restore.
        """
        self._metrics.update({name: hold(value) for name, value in metrics.items()})

    def checkpoints(self) -> list[Checkpoint]:
        """The run's committed checkpoints, newest first."""
        return checkpoints(self._launch.repository, self._launch.run)

    def latest(self) -> Checkpoint | None:
        """The newest committed checkpoint, or None."""
        return newest(self._launch.repository, self._launch.run)

    def wait(self) -> None:
        """Wait until the save under way is durable. Raises its error if nobody was told of it."""
        self._hurry()
        self._background.wait()

    def close(self) -> None:
        """Wait as `wait` does, and let the staging memory go."""
        try:
            self.wait()
        finally:
            self._arena.close()
            self._launch.close()

    def raise_error(self) -> None:
        """Raise the error of the last save if nobody was told of it."""
        self._background.raise_error()

    def _hurry(self) -> None:
        if self._pacer is not None:
            self._pacer.hurry()
