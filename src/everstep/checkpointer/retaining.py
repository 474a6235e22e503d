"""The retention policy of a training, applied in the background after each commit."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

from everstep.errors import AccessDenied, EverstepError, IntegrityError
from everstep.events import Listener, Pruned, PruneFailing
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.repository import Repository
from everstep.repository.verified import mark_verified
from everstep.retention import Policy
from everstep.retention.marking import PackLists
from everstep.retention.prune import plan_prune, prune
from everstep.retention.store_prices import usual_prices

__all__ = ["Retaining"]


class Retaining:
    """Prunes one run, on a thread of its own, one prune at a time; a commit meanwhile asks for one more.

    A prune that fails costs money and no data, so it is told (`PruneFailing`, once for the same trouble) and the
    training goes on: the next commit tries again. Where the newest checkpoint is found damaged nothing is pruned, and
    ``damaged`` is called, so that the next save does not build on it. Without the right to delete it is left to
    `everstep prune`.
    An error that is not the store's is raised by `raise_error`.
    """

    def __init__(
        self,
        repository: Repository,
        run: str,
        policy: Policy,
        *,
        grace_s: float,
        listener: Listener,
        damaged: Callable[[], None],
    ) -> None:
        self._repository = repository
        self._run = run
        self._policy = policy
        self._grace_s = grace_s
        self._listener = listener
        self._damaged = damaged
        self._lists = PackLists(repository)
        self._prices = usual_prices(repository.store.url)
        self._newest: Checkpoint | None = None
        self._whole: Checkpoint | None = None
        self._told = ""
        self._lock = threading.Lock()
        self._wanted = False
        self._working = False
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def committed(self, checkpoint: Checkpoint) -> None:
        """A checkpoint was made: apply the policy, now or after the prune that is under way."""
        self._newest = checkpoint
        if self._policy.keeps_all or self._stopped.is_set():
            return
        with self._lock:
            self._wanted = True
            if self._working:
                return
            self._working = True
            self._thread = threading.Thread(target=self._work, name="everstep-prune", daemon=False)
            self._thread.start()

    def resumed(self, checkpoint: Checkpoint, *, whole: bool) -> None:
        """The training goes on from a checkpoint; ``whole``: all its bytes were read and found whole.

        The next prune writes that down before it chooses.
        """
        self._newest = checkpoint
        self._whole = checkpoint if whole else None

    def left_over(self) -> None:
        """No commit is to come: do what the launch before has left to do."""
        if self._newest is not None:
            self.committed(self._newest)

    def raise_error(self) -> None:
        """Raise what went wrong and is no error of the store, once."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def stop(self) -> None:
        """End between two requests; what is left is done by the next prune."""
        self._stopped.set()

    def wait(self) -> None:
        """Wait until nothing is under way."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        while self._next():
            try:
                self._prune()
                self._told = ""
            except AccessDenied as error:
                self._tell(f"{error.message}: left to `everstep prune`")
                self.stop()
            except EverstepError as error:
                if isinstance(error, IntegrityError) and error.fields.get("step") == self._newest_step:
                    self._damaged()
                self._tell(str(error))
            except Exception as error:  # noqa: BLE001 - handed to the next call, whatever it is
                self._failure = error
                self.stop()

    @property
    def _newest_step(self) -> int | None:
        return None if self._newest is None else self._newest.step

    def _tell(self, trouble: str) -> None:
        """Once for the same trouble, whatever the step is that it names."""
        kind = re.sub(r"\d+", "", trouble)
        if kind != self._told:
            self._listener(PruneFailing(run=self._run, error=trouble))
        self._told = kind

    def _next(self) -> bool:
        """Whether there is one more to do; if not, the thread ends, and that is known to whoever asks next."""
        with self._lock:
            self._working = self._wanted and not self._stopped.is_set()
            self._wanted = False
            return self._working

    def _prune(self) -> None:
        whole, self._whole = self._whole, None
        if whole is not None:
            mark_verified(self._repository, whole.run, whole.save, by="restore")
        plan = plan_prune(
            self._repository,
            self._run,
            self._policy,
            now=self._repository.clock(),
            check="light",
            lists=self._lists,
            measure=False,
            price_per_gb_month=None if self._prices is None else self._prices.gb_month,
        )
        done = prune(
            self._repository, plan, grace_s=self._grace_s, stop=self._stopped.is_set, lists=self._lists
        )
        if plan.victims or done.objects:
            steps = tuple(sorted(victim.step for victim in plan.victims))
            self._listener(Pruned(run=self._run, steps=steps, objects=done.objects, bytes=done.bytes))
