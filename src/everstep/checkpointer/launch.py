"""One launch of a run: its store, its ranks, and the attempt it claims when it first writes or restores."""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections import Counter
from dataclasses import asdict

import msgspec

from everstep.checkpointer.together import Together
from everstep.config import process_settings
from everstep.errors import RanksMissing, UsageError
from everstep.events import Listener
from everstep.format.ids import RunId, parse_run
from everstep.ranks import open_ranks, who_am_i
from everstep.repository.attempts import Attempt, claim
from everstep.repository.catalogue import ensure_run
from everstep.repository.opening import open_repository
from everstep.repository.repository import Repository
from everstep.retention import Policy
from everstep.store.opening import open_store
from everstep.store.protocol import Store
from everstep.store.retry import TRAINING, RetryPolicy

__all__ = ["Launch", "open_reading"]

_LEAVING_S = 10.0


def open_reading(store: str | Store, listener: Listener) -> Repository:
    """A repository that is only read. Raises `NotFound` when there is none."""
    return open_repository(_opened(store, listener), create=False)


def _opened(store: str | Store, listener: Listener, policy: RetryPolicy | None = None) -> Store:
    return open_store(store, listener=listener, policy=policy) if isinstance(store, str) else store


class Launch:
    """A run as one process sees it: one rank of those that were launched together.

    Rank 0 opens the repository and claims attempts; the others learn from it. Belongs to the process that made
    it: a forked child that uses it gets an error, because neither the threads nor the connections of its
    parent live on in it.
    """

    def __init__(
        self, store: str | Store, run: str, *, policy: Policy, every: str, listener: Listener
    ) -> None:
        told = process_settings()
        self._leave_by = math.inf
        self.run: RunId = parse_run(run)
        opened = _opened(store, listener, TRAINING)
        me = who_am_i(told)
        self.rank, self.world = me.rank, me.world
        ranks = open_ranks(told, me, store=opened, run=self.run, sleep=self._nap)
        self._policy, self._every = policy, every
        self.together = Together(ranks, patience_s=told.patience)
        self.repository: Repository = self._open(opened)
        self._number = told.attempt
        self._attempt: Attempt | None = None
        self._topics: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._process = os.getpid()

    def _open(self, store: Store) -> Repository:
        made: list[Repository] = []

        def make() -> bytes:
            made.append(open_repository(store, create=True))
            ensure_run(made[0], self.run, keep="" if self._policy.keeps_all else self._policy.text())
            return b""

        self.together.from_first("open/run", make)
        return made[0] if made else open_repository(store, create=False)

    def attempt(self, *, afresh: bool = False) -> Attempt:
        """The attempt of this launch; claimed at the first call, which finishes or aborts older saves.

        ``afresh`` claims a new one in any case. All ranks call it alike; rank 0 claims.
        """
        self.check_process()
        with self._lock:
            if self._attempt is None or afresh:
                told = self.together.from_first(self.next_topic("attempt"), self._claim)
                self._attempt = Attempt(**msgspec.json.decode(told))
            return self._attempt

    def _claim(self) -> bytes:
        number, self._number = self._number, None  # a launcher's number serves once
        claimed = claim(
            self.repository,
            self.run,
            owner=f"{socket.gethostname()}:{self._process}",
            world=self.world,
            number=number,
            keep=self._policy.text(),
            every=self._every,
        )
        return msgspec.json.encode(asdict(claimed))

    def next_topic(self, family: str) -> str:
        """A topic that was not used before in this launch; all ranks ask for it in the same order."""
        self._topics[family] += 1
        return f"{family}/{self._topics[family]}"

    def leave_soon(self) -> None:
        """The training ended with an error: other ranks, which may be dead, are waited for a few seconds more."""
        self._leave_by = time.monotonic() + _LEAVING_S

    def _nap(self, seconds: float) -> None:
        time.sleep(seconds)
        if time.monotonic() > self._leave_by:
            raise RanksMissing(
                f"this rank's training ended with an error, and other ranks did not come within {_LEAVING_S:.0f} s",
                hint="the next launch commits the save if all ranks have written their parts",
                missing=(),
            )

    def close(self) -> None:
        """Say farewell to the other ranks, and let the connections to them go."""
        self.together.farewell()
        self.together.ranks.close()

    def check_process(self) -> None:
        """Refuse to work in a forked child."""
        if os.getpid() != self._process:
            raise UsageError(
                "this Checkpointer belongs to the parent process",
                hint="use it in the process that made it; data-loader workers must not save or restore",
            )
