"""The training loop's iterator: restore, count, save when due, stop when told."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from everstep.checkpointer.because import Because, Reason
from everstep.checkpointer.boundaries import Boundaries
from everstep.checkpointer.demand import Demand
from everstep.checkpointer.pace import Pace
from everstep.checkpointer.pending import Pending
from everstep.checkpointer.signals import StopSignals
from everstep.errors import UsageError
from everstep.progress import ProgressFile

__all__ = ["PREEMPTED", "steps"]

PREEMPTED = 75
"""The exit code that tells a launcher: preempted, and the checkpoint is durable."""


_END = Because(Reason.END, "the last step")


class _Saver(Protocol):
    """What a loop does with a state. ``stepped`` is told after each step; ``leave`` when only an exit is to come."""

    def prepare(self, state: Any) -> None: ...
    def save(self, step: int, state: Any, because: Because) -> Pending: ...
    def stepped(self, seconds: float) -> None: ...
    def raise_error(self) -> None: ...
    def wait(self) -> None: ...
    def leave(self) -> None: ...


def steps(
    saver: _Saver,
    state: Any,
    *,
    restore: Callable[[], int | None],
    until: int,
    boundaries: Callable[[StopSignals], Boundaries],
    demand: Demand,
    pace: Pace,
    progress: ProgressFile | None,
) -> Iterator[int]:
    """Yield each step that is left, from the restored one to ``until - 1``.

    Raises `UsageError` when the run is already beyond ``until``; SystemExit with code 75 when a stop
    signal came, to this rank or another one, and the state is durable.
    """
    with StopSignals() as signals, demand, boundaries(signals) as boundary:
        saved = start = restore() or 0
        if start > until:
            raise UsageError(
                f"the newest checkpoint has step {start}, beyond until={until}",
                hint="raise until, restore an older step into a fork, or choose another run",
            )
        pace.since_save(time.monotonic())
        boundary.begin(start, until)
        for step in range(start, until):
            if step == start and (due := boundary.at(start, step_s=0.0, since_save_s=0.0)) and due.stop:
                saver.leave()
                boundary.leave()
                raise SystemExit(PREEMPTED)
            began = time.monotonic()
            yield step
            ended = time.monotonic()
            saver.stepped(ended - began)
            done = step + 1
            if progress:
                progress.step(done)
            saver.raise_error()
            due = boundary.at(done, step_s=ended - began, since_save_s=pace.since_save(ended))
            if due or done == until:
                because = _END if done == until or due is None else due.because
                pending = saver.save(done, state, because)
                saved = saved if pending.skipped else done
            elif step == start:
                saver.prepare(state)
            if due and due.stop and done < until:
                saver.leave()
                _make_durable(saver, state, due.because, done=done, saved=saved)
                boundary.leave()
                raise SystemExit(PREEMPTED)
        _make_durable(saver, state, _END, done=until, saved=saved)
        if start < until and boundary.ended():
            saver.leave()
            boundary.leave()
            raise SystemExit(PREEMPTED)


def _make_durable(saver: _Saver, state: Any, because: Because, *, done: int, saved: int) -> None:
    saver.wait()
    if saved != done:
        saver.save(done, state, because)
        saver.wait()
