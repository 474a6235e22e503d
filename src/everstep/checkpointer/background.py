"""The one save that may be under way, on a thread that the interpreter waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable

from everstep.checkpointer.pending import Pending
from everstep.repository.checkpoint import Checkpoint

__all__ = ["Background"]


class Background:
    """Runs one save at a time. The thread is no daemon: an interpreter that exits waits for it."""

    def __init__(self) -> None:
        self._pending: Pending | None = None
        self._before: int | None = None

    @property
    def busy(self) -> bool:
        """Whether a save is under way."""
        return self._pending is not None and not self._pending.done

    @property
    def last_step(self) -> int | None:
        """The step of the last save that is under way or ended well."""
        return self._pending.step if self._pending and self._pending.error is None else self._before

    def start(self, step: int, work: Callable[[], Checkpoint]) -> Pending:
        """Begin ``work``; the save before has ended."""
        self._before = self.last_step
        pending = Pending(step)

        def settle() -> None:
            try:
                checkpoint = work()
            except BaseException as error:  # noqa: BLE001 - handed to the next call, whatever it is
                pending.settle(None, error)
            else:
                pending.settle(checkpoint, None)

        self._pending = pending
        threading.Thread(target=settle, name=f"everstep-save-{step}", daemon=False).start()
        return pending

    def forget(self) -> None:
        """Begin to count steps anew; no save is under way."""
        self._pending = self._before = None

    def raise_error(self) -> None:
        """Raise the last save's error if nobody was told of it."""
        if self._pending is not None:
            self._pending.raise_error(once=True)

    def wait(self) -> None:
        """Wait for the save under way. Raises its error if nobody was told of it."""
        if self._pending is not None:
            self._pending.ended.wait()
            self.raise_error()

    def settle(self) -> None:
        """Wait for the save under way and raise nothing: another error is on its way already."""
        if self._pending is not None:
            self._pending.ended.wait()
