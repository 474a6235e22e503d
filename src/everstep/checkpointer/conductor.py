"""The conductor of a training's checkpoints: restore, save, loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from signal import Signals
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from everstep.cadence import Cadence, Every, parse_every
from everstep.cadence.history import lives
from everstep.checkpointer.among_ranks import AmongRanks
from everstep.checkpointer.because import BY_HAND
from everstep.checkpointer.boundaries import Alone, Boundaries
from everstep.checkpointer.choosing import restore_together
from everstep.checkpointer.demand import Demand
from everstep.checkpointer.launch import Launch
from everstep.checkpointer.pending import Pending
from everstep.checkpointer.restoring import Restored, check_on_corrupt
from everstep.checkpointer.retaining import Retaining
from everstep.checkpointer.saver import Manner, Saver
from everstep.checkpointer.signals import StopSignals
from everstep.checkpointer.stepping import steps
from everstep.checkpointer.telling import log_event, log_trouble
from everstep.config import process_settings, settings
from everstep.errors import UsageError
from everstep.events import Listener, PartsResized, RequestsUnheard
from everstep.progress import ProgressFile
from everstep.repository.catalogue import checkpoints, newest
from everstep.repository.checkpoint import Checkpoint
from everstep.retention import Rule, parse_keep
from everstep.retention.store_prices import check_priced
from everstep.state.conversion import match
from everstep.state.describe import encode_config
from everstep.state.flat import Coverage
from everstep.store.protocol import Store

if TYPE_CHECKING:
    from everstep.state.architecture import Architecture

__all__ = ["Checkpointer"]

State = MutableMapping[str, Any]


class Checkpointer:
    """Saves and restores one run's training state.

    ``store`` is a URL, a folder or a `Store` (default: EVERSTEP_STORE), ``run`` the training's name
    (default: EVERSTEP_RUN).

    ``every`` is when `loop` saves: steps (500), a duration ("10m"), "auto", or another cadence (default:
    EVERSTEP_EVERY). ``keep`` is the retention policy ("last 3, best 2 by val_loss"), applied in the background after
    each commit (default: EVERSTEP_KEEP, else all is kept); ``grace`` is how long what it gives up can be undeleted, in
    seconds or as "24h" (default: EVERSTEP_GRACE, else not at all).

    ``on_corrupt`` is "previous" (fall back, loudly, to the newest checkpoint that verifies) or "fail". ``busy`` says
    what `save` does while another save is under way: "wait" or "skip". ``config`` (plain values) and ``architecture``
    go into each checkpoint. ``check_finite`` marks checkpoints whose tensors hold NaN or infinities. Before ranks
    commit, the first bytes of replicated parameters are compared, and with ``check_replicas`` all bytes that are
    replicated (training stands still while they are hashed): a save whose replicas differ is refused, naming leaf and
    ranks (`DivergentReplicas`).

    ``listener`` gets the events of `everstep.events`, in the thread where they happen; by default they become log
    lines, on ranks other than the first only those of trouble.

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
        every: Every = None,
        keep: str | Rule | Sequence[Rule | str] | None = None,
        grace: str | float | None = None,
        on_corrupt: str | None = None,
        busy: Literal["wait", "skip"] = "wait",
        config: object = None,
        architecture: Architecture | None = None,
        check_finite: bool = False,
        check_replicas: bool = False,
        listener: Listener | None = None,
    ) -> None:
        chosen = settings(
            store=store if isinstance(store, str) else None, run=run, on_corrupt=on_corrupt, grace=grace
        )
        where = store if store is not None else chosen.store
        if where is None:
            raise UsageError("no store is given", hint="pass store=, or set EVERSTEP_STORE")
        if chosen.run is None:
            raise UsageError("no run is named", hint="pass run=, or set EVERSTEP_RUN")
        self._cadence: Cadence = parse_every(chosen.every if every is None else every)
        policy = parse_keep(chosen.keep if keep is None else keep)
        check_priced(policy, where if isinstance(where, str) else where.url)
        self._on_corrupt = check_on_corrupt(chosen.on_corrupt)
        self._settings = chosen
        manner = Manner(
            busy=busy,
            config=encode_config(config),
            architecture=architecture,
            check_finite=check_finite,
            check_replicas=check_replicas,
        )
        self._launch = Launch(
            where,
            chosen.run,
            policy=policy,
            every=self._cadence.text(),
            listener=listener or log_event,
        )
        self._listener = listener or (log_event if self._launch.rank == 0 else log_trouble)
        told = process_settings().progress
        self._progress = ProgressFile(told) if told and self._launch.rank == 0 else None
        self._demand = Demand(
            chosen.run,
            watched=self._launch.repository if self._launch.rank == 0 else None,
            watch_s=chosen.watch,
            number=None if chosen.save_signal == "none" else Signals[chosen.save_signal],
            busy=lambda: self._saver.busy,
            trouble=lambda error: self._listener(RequestsUnheard(run=self._launch.run, error=str(error))),
        )
        self._retaining = Retaining(
            self._launch.repository,
            chosen.run,
            policy if self._launch.rank == 0 else parse_keep(None),
            grace_s=chosen.grace,
            listener=self._listener,
            damaged=self._build_afresh,
        )
        self._saver = Saver(
            self._launch,
            manner,
            cadence=self._cadence,
            settings=chosen,
            progress=self._progress,
            listener=self._listener,
            begins=self._demand.began,
            committed=self._demand.served,
            retaining=self._retaining,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._launch.leave_soon()
            self._saver.leave()
            self._saver.settle()

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
        afresh = self._saver.last_step is not None
        self._saver.begin_anew()
        self._launch.attempt(afresh=afresh)
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
            self._saver.resumed(restored)
            self._retaining.resumed(restored.checkpoint, whole=self._read_whole(restored))
        self.prepare(state)
        return reached

    def prepare(self, state: State) -> None:
        """Make staging memory for a state of this size ready, in the background."""
        self._saver.prepare(state)

    def save(self, step: int, state: State, *, metrics: Mapping[str, object] | None = None) -> Pending:
        """Save the state as the checkpoint of ``step``; returns when it is staged and may change again.

        The rest goes on in the background: `Pending.wait` waits until it is durable. ``metrics`` are logged
        as by `log`. Raises the error of the save before, if nobody was told of it; `UnsupportedLeaf`
        for what cannot be saved, `UsageError` for a step that is not above the last one saved.
        """
        return self._saver.save(step, state, BY_HAND, metrics)

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

        def restored() -> int | None:
            reached = self.restore(state, step=step, strict=strict, skip=skip)
            self._learn_lives()
            if reached == until and step is None:
                self._retaining.left_over()
            return reached

        return steps(
            self._saver,
            state,
            restore=restored,
            until=until,
            boundaries=self._boundaries,
            demand=self._demand,
            pace=self._saver.pace,
            progress=self._progress,
        )

    def _boundaries(self, signals: StopSignals) -> Boundaries:
        if self._launch.world == 1:
            return Alone(signals, self._cadence, self._demand)
        return AmongRanks(self._launch.together, signals, self._cadence, self._demand)

    def _read_whole(self, restored: Restored[None]) -> bool:
        """Whether the ranks of this restore have read all bytes of the checkpoint together."""
        found = restored.coverage
        parts = found.skipped or found.unexpected or found.resized
        return not parts and restored.checkpoint.world == self._launch.world

    def _build_afresh(self) -> None:
        """What was saved last is damaged."""
        self._saver.forget_base()

    def _learn_lives(self) -> None:
        """Rank 0 tells the cadence how the run's attempts ended, if it asks for that."""
        if not self._cadence.by_history:
            return
        launch = self._launch
        current = launch.attempt().number

        def learn() -> bytes:
            self._cadence.learn(lives(launch.repository, launch.run, current=current))
            return b""

        launch.together.from_first(launch.next_topic("lives"), learn)

    def log(self, **metrics: object) -> None:
        """Remember metrics (numbers, 0-d tensors, text) for the checkpoints to come; the newest value wins.

        A tensor is read when a save is made, so that logging never waits for a device. What a checkpoint
        has logged is there again after its restore.
        """
        self._saver.log(metrics)

    def checkpoints(self) -> list[Checkpoint]:
        """The run's committed checkpoints, newest first."""
        return checkpoints(self._launch.repository, self._launch.run)

    def latest(self) -> Checkpoint | None:
        """The newest committed checkpoint, or None."""
        return newest(self._launch.repository, self._launch.run)

    def wait(self) -> None:
        """Wait until the save under way is durable. Raises its error if nobody was told of it."""
        self._saver.wait()

    def close(self) -> None:
        """Wait as `wait` does, and for the prune under way; let the staging memory go."""
        try:
            self.wait()
            self._retaining.wait()
            self.raise_error()
        finally:
            self._retaining.stop()
            self._saver.close()
            self._launch.close()

    def raise_error(self) -> None:
        """Raise the error of the last save, or a prune's that is none of the store's, if nobody was told of it."""
        self._saver.raise_error()
