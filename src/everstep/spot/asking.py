"""A save that is asked of a training elsewhere: through the store alone, which both can reach."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from everstep.errors import CheckpointPruned, EverstepError, TryAgain
from everstep.format.ids import SaveId
from everstep.format.records import AttemptRecord
from everstep.repository.catalogue import checkpoint, newest
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.fence import attempts_after, read_attempt
from everstep.repository.repository import Repository
from everstep.repository.requests import answered, withdraw

__all__ = ["Standing", "standing", "wait_for_save"]

_FIRST_POLL_S, _LONGEST_POLL_S = 0.25, 1.0
"""One small read each: a second, because where little is kept the checkpoint may soon be pruned if it is not tagged."""
_LOOK_AFTER_S = 15.0
"""How often it is looked after whether the training that was asked still stands."""
_NO_TRAINING = ("fork", "import on ")
"""Who claims an attempt, and trains nothing."""
_GRACE_S = 10.0
"""From the commit of a training's last save to its answer, and then some."""
_DEAF = (
    "look at its log, and whether it runs; a training hears requests only inside `for step in ckpt.loop(...)`, "
    "looks for them every EVERSTEP_WATCH seconds (15; 0 is never), and saves at the end of a step"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the store tells of whoever trains a run: its newest launch, and the newest checkpoint of the run."""

    attempt: AttemptRecord
    newest: Checkpoint | None

    @property
    def ended(self) -> str:
        """How the newest launch ended, as far as it has said so: ``end``, ``notice``, or empty."""
        if self.newest is None or self.newest.attempt != self.attempt.attempt:
            return ""
        return self.newest.reason if self.newest.reason in {"end", "notice"} else ""

    def __str__(self) -> str:
        ranks = "1 rank" if self.attempt.world == 1 else f"{self.attempt.world} ranks"
        return f"attempt {self.attempt.attempt} ({self.attempt.owner}, {ranks})"


def standing(repo: Repository, run: str) -> Standing:
    """Whoever may train the run now. Raises `TryAgain` when nobody does: never launched, or at its end."""
    numbers = attempts_after(repo, run, 0)
    attempt = read_attempt(repo, run, numbers[-1]) if numbers else None
    if attempt is None or attempt.owner.startswith(_NO_TRAINING):
        made = "it has no attempt" if attempt is None else f"its newest attempt is a {attempt.owner}"
        raise TryAgain(
            f"no training of run {run!r} runs: {made}", hint="start the training, and ask then", run=run
        )
    found = Standing(attempt=attempt, newest=newest(repo, run))
    if found.ended == "end":
        raise _finished(found)
    return found


def wait_for_save(
    repo: Repository,
    run: str,
    request: str,
    before: Standing,
    *,
    timeout_s: float,
    told: Callable[[str], None],
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Checkpoint:
    """The checkpoint that is made for a request, which is taken back in any case: served, given up or interrupted.

    ``before`` is who stood there when it was asked; ``told`` gets words for people. Raises `TryAgain` after
    ``timeout_s`` seconds, or when the training has come to its end without an answer, and `CheckpointPruned` when the
    checkpoint was there and a prune was faster.
    """
    try:
        save = _Wait(repo, run, request, standing=before, told=told, now=now, sleep=sleep).answer(timeout_s)
    except BaseException:
        with suppress(EverstepError):  # the error that is on its way says more
            withdraw(repo, run, request)
        raise
    with suppress(EverstepError):  # who may not delete leaves it to `tidy`
        withdraw(repo, run, request)
    found = checkpoint(repo, run, save)
    if found is None:
        raise CheckpointPruned(
            f"{run}@{save.step} was saved as asked, and is pruned already",
            hint="keep more checkpoints, or ask again with --tag",
            run=run,
            step=save.step,
        )
    return found


class _Wait:
    """One wait for an answer; now and then it looks after the training, and tells what has changed."""

    def __init__(
        self,
        repo: Repository,
        run: str,
        request: str,
        *,
        standing: Standing,
        told: Callable[[str], None],
        now: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._repo, self._run, self._request = repo, run, request
        self._standing = standing
        self._told, self._now, self._sleep = told, now, sleep

    def answer(self, timeout_s: float) -> SaveId:
        """The save, as soon as the training tells it."""
        began = self._now()
        poll_s, look_at, over_at = _FIRST_POLL_S, began + _LOOK_AFTER_S, math.inf
        while True:
            if (save := answered(self._repo, self._run, self._request)) is not None:
                return save
            now = self._now()
            if now >= over_at:
                raise _finished(self._standing)
            if now - began >= timeout_s:
                return self._last_word(timeout_s)
            if now >= look_at:
                look_at = now + _LOOK_AFTER_S
                self._look(now - began)
                over_at = min(over_at, now + _GRACE_S) if self._standing.ended == "end" else math.inf
            self._sleep(min(poll_s, max(0.0, began + timeout_s - self._now())))
            poll_s = min(poll_s * 1.5, _LONGEST_POLL_S)

    def _look(self, waited_s: float) -> None:
        """Once more who stands there: two lists, and what is new."""
        before, attempt = self._standing, self._standing.attempt
        later = attempts_after(self._repo, self._run, attempt.attempt)
        if later:
            attempt = read_attempt(self._repo, self._run, later[-1])
        self._standing = Standing(attempt=attempt, newest=newest(self._repo, self._run))
        if later:
            self._told(f"a newer launch has begun: {self._standing}; it is asked too")
        elif self._standing.ended == "notice" and before.ended != "notice":
            self._told(f"{self._standing} was told to stop and has saved; the next launch is asked too")
        else:
            self._told(f"still waiting, for {waited_s:.0f} s now")

    def _last_word(self, timeout_s: float) -> SaveId:
        """The request is taken back; an answer that was faster counts. Raises `TryAgain`."""
        found, left = self._standing, ""
        try:
            if (save := withdraw(self._repo, self._run, self._request)) is not None:
                return save
        except EverstepError as error:
            left = f"; the request could not be taken back ({error.message}) and may still be served"
        seen = (
            "it has saved nothing yet" if found.newest is None else f"the newest checkpoint is {found.newest}"
        )
        raise TryAgain(
            f"no save of run {self._run!r} came in {timeout_s:.0f} s: {found} has not answered, and {seen}{left}",
            hint=_DEAF,
            run=self._run,
            attempt=found.attempt.attempt,
            owner=found.attempt.owner,
            step=None if found.newest is None else found.newest.step,
        )


def _finished(found: Standing) -> TryAgain:
    assert found.newest is not None, "an end is a checkpoint"
    return TryAgain(
        f"no training of run {found.attempt.run!r} runs: {found} has finished and saved {found.newest} at its end",
        hint=f"use {found.newest}; or start the training with more steps, and ask then",
        run=found.attempt.run,
        attempt=found.attempt.attempt,
        step=found.newest.step,
    )
