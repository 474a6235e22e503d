"""A training script as a child process that can be watched and stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from everstep.config import child_environment
from everstep.progress import read_progress

__all__ = ["Child", "Progress", "anchored"]

_POLL_S = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a training told of itself: steps done, saves begun and committed, and where it went on from."""

    steps: int
    begun: int
    committed: int
    resumed: int

    @property
    def saving(self) -> bool:
        """Whether a save is under way."""
        return self.begun > self.committed


def anchored(command: Sequence[str]) -> list[str]:
    """The command with the names of existing files made absolute, so that it runs from any folder.

    The program itself only where it is written as a path: a bare name is looked up as a shell does.
    """
    return [
        str(Path(word).absolute()) if (position or "/" in word) and Path(word).exists() else word
        for position, word in enumerate(command)
    ]


class Child:
    """One launch of a command, in a session of its own and a working folder that is empty and goes with it.

    Its output goes to ``log``. On leaving the context the whole session is killed, helpers included.
    """

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str], log: Path) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="everstep-work-", ignore_cleanup_errors=True)
        self._state = tempfile.TemporaryDirectory(prefix="everstep-progress-")
        self._progress = Path(self._state.name) / "progress"
        self.started = time.monotonic()
        with log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - running the user's command is the purpose
                list(command),
                cwd=self._folder.name,
                env=child_environment({**environment, "EVERSTEP_PROGRESS": str(self._progress)}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill_session()
        self._process.wait()
        self._folder.cleanup()
        self._state.cleanup()

    def progress(self) -> Progress:
        """What it told until now, or before it died."""
        steps, begun, committed, resumed = read_progress(self._progress)
        return Progress(steps=steps, begun=begun, committed=committed, resumed=max(0, resumed - 1))

    def ended(self) -> int | None:
        """The exit code, negative for a signal, or None while it runs."""
        return self._process.poll()

    def wait(self, timeout_s: float) -> int | None:
        """The exit code, or None if it still runs after ``timeout_s`` seconds."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def send(self, number: signal.Signals) -> None:
        """Signal the one process; never its helpers, which a training needs for its last save."""
        self._process.send_signal(number)

    def kill_session(self) -> None:
        """Kill -9 the process and everything it started, as a machine that goes away does."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def pause(self) -> None:
        """Let it run for a moment."""
        time.sleep(_POLL_S)
