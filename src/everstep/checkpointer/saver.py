"""The save half of a Checkpointer: from a state that stands still to a save under way in the background."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from everstep.cadence import Cadence, Decision, Measured
from everstep.cadence.record import as_record, measured_before
from everstep.checkpointer.background import Background
from everstep.checkpointer.because import Because
from everstep.checkpointer.launch import Launch
from everstep.checkpointer.pace import Pace
from everstep.checkpointer.pending import Pending
from everstep.checkpointer.restoring import Restored
from everstep.checkpointer.retaining import Retaining
from everstep.checkpointer.saving import Base, Work, known_chunks, run
from everstep.config import Settings
from everstep.errors import UsageError
from everstep.events import (
    CadenceDecided,
    Listener,
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
from everstep.repository.checkpoint import Checkpoint
from everstep.state.conversion import flatten
from everstep.state.describe import encode_metrics, hold
from everstep.state.flat import Flat
from everstep.state.pinning import pin
from everstep.transfer.alike import Alike, held_alike, sampled_alike
from everstep.transfer.memory import Arena
from everstep.transfer.pacer import Pacer
from everstep.transfer.stage import stage

if TYPE_CHECKING:
    from everstep.state.architecture import Architecture

__all__ = ["Manner", "Saver"]

State = MutableMapping[str, Any]

_HEADERS_BYTES, _HEADER_BYTES = 2**22, 2**9
"""Room for packs' headers: at least, and for each leaf."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a user wants saves to be made: arguments of `Checkpointer` by their names; the configuration is encoded."""

    busy: Literal["wait", "skip"]
    config: Any
    architecture: Architecture | None
    check_finite: bool
    check_replicas: bool

    def __post_init__(self) -> None:
        if self.busy not in {"wait", "skip"}:
            raise UsageError(
                f"busy={self.busy!r} is neither 'wait' nor 'skip'", hint="'wait' never loses a save"
            )


class Saver:
    """Stages the state, starts the background, and keeps what the next save builds on.

    ``begins`` is called before the state is copied, ``committed`` in the background for each checkpoint that was made.
    """

    def __init__(
        self,
        launch: Launch,
        manner: Manner,
        *,
        cadence: Cadence,
        settings: Settings,
        progress: ProgressFile | None,
        listener: Listener,
        begins: Callable[[], None],
        committed: Callable[[Checkpoint], None],
        retaining: Retaining,
    ) -> None:
        self._launch = launch
        self._manner = manner
        self._cadence = cadence
        self._settings = settings
        self._progress = progress
        self._listener = listener
        self._begins = begins
        self._committed = committed
        self._retaining = retaining
        self._arena = Arena(pin=pin)
        self._background = Background()
        self._base: Base | None = None
        self._metrics: dict[str, object] = {}
        self._measured: deque[Measured] = deque()
        self._last_measured: Measured | None = None
        self._decisions: list[Decision] = []
        self._saves = 0
        self._pacer: Pacer | None = None
        self.pace = Pace()
        self.last_step: int | None = None

    @property
    def busy(self) -> bool:
        """Whether a save is under way."""
        return self._background.busy

    def begin_anew(self) -> None:
        """Before a restore: the save under way has ended, and steps count anew."""
        self._background.wait()
        self._background.forget()
        self.last_step = None

    def resumed(self, restored: Restored[Any]) -> None:
        """Go on from a checkpoint: its metrics, its chunks (which need not be uploaded again), what saves cost."""
        self._metrics = dict(restored.checkpoint.metrics)
        self._base = Base(checkpoint=restored.checkpoint, known=known_chunks(restored.indexes))
        before = measured_before(restored.manifest.meta)
        if before is not None and self._last_measured is None and self._launch.rank == 0:
            self._measured.append(before)

    def forget_base(self) -> None:
        """What was saved last is damaged: the next save uploads all its bytes."""
        self._base = None

    def prepare(self, state: State) -> None:
        """Make staging memory for a state of this size ready, in the background."""
        rank, world = self._launch.rank, self._launch.world
        flat = flatten(state, rank=rank, world=world)
        plan = plan_save(flat.pieces, rank=rank, world=world, entries=flat.entries)
        headers = _HEADERS_BYTES + _HEADER_BYTES * len(plan.writes)
        self._arena.prepare(headers + plan.nbytes)

    def log(self, metrics: Mapping[str, object]) -> None:
        """Remember metrics for the checkpoints to come."""
        self._metrics.update({name: hold(value) for name, value in metrics.items()})

    def save(
        self, step: int, state: State, because: Because, metrics: Mapping[str, object] | None = None
    ) -> Pending:
        """As `Checkpointer.save`."""
        self._launch.check_process()
        self._background.raise_error()
        if self._manner.busy == "skip" and self._skips():
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
            self._begins()
            work = self._staged(step, state, because, attempt=attempt, topic=topic, began=began)
        except BaseException as error:
            self._launch.together.fail(topic, error)
            raise
        try:
            stall_s = time.monotonic() - began
            self._listener(SaveStaged(run=attempt.run, step=step, bytes=work.staged.nbytes, stall_s=stall_s))
            self._saves += 1
            self.last_step = step
            if self._progress:
                self._progress.begun(self._saves)
            self._pacer = work.pacer
            return self._background.start(step, lambda: self._finish(work, began, stall_s))
        except BaseException:
            work.staged.release()
            raise

    def stepped(self, seconds: float) -> None:
        """A step took so long. The cadence learns what saves cost, in the thread of the training."""
        self.pace.stepped(seconds, beside=self._background.busy)
        while self._measured:
            self._last_measured = self._measured.popleft()
            self._cadence.learn(self._last_measured)
        for decision in self._cadence.decisions():
            self._decisions.append(decision)
            self._listener(
                CadenceDecided(
                    run=self._launch.run,
                    step=decision.step,
                    from_s=decision.from_s,
                    to_s=decision.to_s,
                    why=decision.why,
                )
            )

    def wait(self) -> None:
        """Wait until the save under way is durable. Raises its error if nobody was told of it."""
        self.hurry()
        self._background.wait()

    def settle(self) -> None:
        """Wait for the save under way and raise nothing: another error is on its way already."""
        self.hurry()
        self._background.settle()

    def hurry(self) -> None:
        """The save under way need not spare the training any more."""
        if self._pacer is not None:
            self._pacer.hurry()

    def raise_error(self) -> None:
        """Raise the error of the last save, or of the last prune, if nobody was told of it."""
        self._background.raise_error()
        self._retaining.raise_error()

    def leave(self) -> None:
        """Only an exit is to come: what need not be done now is left to the next launch."""
        self.hurry()
        self._retaining.stop()

    def close(self) -> None:
        """Let the staging memory go."""
        self._arena.close()

    def _staged(
        self, step: int, state: State, because: Because, *, attempt: Attempt, topic: str, began: float
    ) -> Work:
        """The state copied, and all that the background needs beside it."""
        rank, world = self._launch.rank, self._launch.world
        manner = self._manner
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
            meta=Meta(
                metrics=encode_metrics(self._metrics),
                config=manner.config,
                architecture=None if manner.architecture is None else manner.architecture.record(),
                reason=because.reason.value,
                cadence=self._told(because),
            ),
            base=self._base,
            pacer=self.pace.pacer(staged.nbytes, cadence=self._cadence, now=began),
            workers=self._settings.workers,
            listener=self._listener,
            check_finite=manner.check_finite,
        )

    def _told(self, because: Because) -> Any:
        """Why this save is made, and what the cadence decided since the one before: for `everstep show`."""
        if self._launch.rank or not because.words:
            return None
        decisions, self._decisions = self._decisions, []
        return as_record(
            because.words,
            interval_s=self._cadence.interval_s(step_s=self.pace.step_s),
            decisions=decisions,
            measured=self._last_measured,
        )

    def _alike(self, flat: Flat) -> Alike | None:
        """What is compared between ranks before a commit: all replicas if the user asked for it, else a sample."""
        if self._launch.world == 1:
            return None
        if self._manner.check_replicas:
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

    def _finish(self, work: Work, began: float, stall_s: float) -> Checkpoint:
        try:
            self._base = run(work)
        except BaseException as error:
            self._listener(SaveFailing(run=work.attempt.run, step=work.step, error=str(error)))
            raise
        checkpoint = self._base.checkpoint
        if self._progress:
            self._progress.committed(self._saves)
        durable_s = time.monotonic() - began
        self._measured.append(
            Measured(
                step=checkpoint.step,
                stall_s=stall_s,
                durable_s=durable_s,
                slowed_s=self.pace.slowed_s(),
                bytes=checkpoint.bytes,
                stored_bytes=checkpoint.stored_bytes,
                at=checkpoint.created,
            )
        )
        self._listener(
            SaveCommitted(
                run=checkpoint.run,
                step=checkpoint.step,
                bytes=checkpoint.bytes,
                stored_bytes=checkpoint.stored_bytes,
                durable_s=durable_s,
            )
        )
        self._committed(checkpoint)
        self._retaining.committed(checkpoint)
        return checkpoint
