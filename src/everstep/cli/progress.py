"""Progress on stderr: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from everstep.cli import output
from everstep.events import Event, FellBack, Listener, Retried, SaveFailing, Transferred

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

__all__ = ["Bar", "Lines", "Progress", "progress"]

_EVERY_S = 10.0
"""How often a log gets a line: often enough to see that it lives, seldom enough to read the log."""


def _words(event: Event) -> str | None:
    """What is told of an event that is not plain progress."""
    match event:
        case Retried():
            return f"{event.verb} {event.key} failed ({event.error}); again in {event.wait_s:.1f} s"
        case FellBack():
            return (
                f"WARNING: step {event.damaged_step} of {event.run} is damaged ({event.error}); "
                f"fell back to step {event.to_step}"
            )
        case SaveFailing():
            return f"saving step {event.step} of {event.run} failed: {event.error}"
        case _:
            return None


class Lines:
    """A line when something begins to move, every ten seconds, and when it is through. Thread-safe.

    With ``moves=False`` only troubles are told: retries, a damaged checkpoint passed over.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        *,
        moves: bool = True,
        every_s: float = _EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say = say
        self._moves = moves
        self._every_s = every_s
        self._clock = clock
        self._lock = threading.Lock()
        self._told: dict[str, float] = {}

    def __enter__(self) -> Listener:
        """The listener to hand to the library."""
        return self._hear

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left to do."""

    def _hear(self, event: Event) -> None:
        if isinstance(event, Transferred):
            if self._moves:
                self._moved(event)
        elif (words := _words(event)) is not None:
            self._say(output.printable(words))

    def _moved(self, event: Transferred) -> None:
        now = self._clock()
        with self._lock:
            last = self._told.get(event.what)
            through = event.done >= event.total
            if not through and last is not None and now - last < self._every_s:
                return
            if through:
                self._told.pop(event.what, None)
            else:
                self._told[event.what] = now
            share = f" ({100 * event.done // event.total} %)" if event.total else ""
            self._say(
                f"{event.what}: {output.bytes_text(event.done)} of {output.bytes_text(event.total)}{share}"
            )


class Bar:
    """One bar of rich for each thing that moves; words stand above the bars. Thread-safe."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        self._bars: Bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(file=stream, no_color=output.colour_is_off()),
            transient=True,
        )
        self._lock = threading.Lock()
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Listener:
        """The listener to hand to the library; the bars are on the screen until the end of the block."""
        self._bars.__enter__()
        return self._hear

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The bars go, so that results and errors stand alone."""
        self._bars.__exit__(kind, error, trace)

    def _hear(self, event: Event) -> None:
        if isinstance(event, Transferred):
            with self._lock:
                if event.what not in self._tasks:
                    self._tasks[event.what] = self._bars.add_task(
                        output.printable(event.what), total=event.total
                    )
            self._bars.update(self._tasks[event.what], completed=event.done, total=event.total)
        elif (words := _words(event)) is not None:
            self._bars.console.print(output.printable(words), markup=False, highlight=False)


Progress = Lines | Bar


def progress(*, quiet: bool = False) -> Progress:
    """The progress that fits stderr and the settings: to be entered, which gives the listener."""
    from everstep.config import settings

    shown = settings().show_progress
    if quiet or shown == "never":
        return Lines(output.say, moves=False)
    return Bar(sys.stderr) if shown == "always" or sys.stderr.isatty() else Lines(output.say)
