"""A save on its way."""

from __future__ import annotations

import threading

from everstep.errors import TryAgain
from everstep.repository.checkpoint import Checkpoint

__all__ = ["Pending"]


class Pending:
    """A save whose state is staged and whose bytes are on their way.

    ``skipped`` says that another save was in flight and this one was not begun, as the user chose.
    """

    def __init__(self, step: int, *, skipped: bool = False) -> None:
        self.step = step
        self.skipped = skipped
        self.ended = threading.Event()
        self._checkpoint: Checkpoint | None = None
        self._error: BaseException | None = None
        self._raised = False
        if skipped:
            self.ended.set()

    def __repr__(self) -> str:
        state = (
            "skipped" if self.skipped else "failed" if self._error else "done" if self.done else "under way"
        )
        return f"<Pending save of step {self.step}: {state}>"

    @property
    def done(self) -> bool:
        """Whether it ended, well or not."""
        return self.ended.is_set()

    @property
    def error(self) -> BaseException | None:
        """Why it failed, if it did."""
        return self._error

    def wait(self, timeout_s: float | None = None) -> Checkpoint | None:
        """Wait until it is durable, and return the checkpoint (None when skipped).

        Raises the error that stopped it; `TryAgain` when ``timeout_s`` seconds pass first.
        """
        if not self.ended.wait(timeout_s):
            raise TryAgain(
                f"the save of step {self.step} is not durable after {timeout_s} s",
                hint="wait longer; the save goes on in the background",
                step=self.step,
            )
        self.raise_error()
        return self._checkpoint

    def raise_error(self, *, once: bool = False) -> None:
        """Raise the error that stopped it, if any; with ``once`` only if it was not raised before."""
        if self._error is not None and not (once and self._raised):
            self._raised = True
            raise self._error

    def settle(self, checkpoint: Checkpoint | None, error: BaseException | None) -> None:
        """End it; called by the background work."""
        self._checkpoint = checkpoint
        self._error = error
        self.ended.set()
