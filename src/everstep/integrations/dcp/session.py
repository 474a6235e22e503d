"""What a writer keeps between saves: its store, its attempt, its memory, and the save that is open."""

from __future__ import annotations

import os
import socket
import threading
from dataclasses import dataclass, field
from typing import Final

from everstep.errors import EverstepError, UsageError
from everstep.events import Listener
from everstep.format.digests import Digest
from everstep.format.ids import parse_run
from everstep.integrations.dcp.handing import Joining
from everstep.ranks import Ranks
from everstep.repository.attempts import Attempt, claim
from everstep.repository.catalogue import ensure_run
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.opening import open_repository
from everstep.repository.repository import Repository
from everstep.repository.saves import Save, abort
from everstep.state.pinning import pin
from everstep.store.opening import open_store
from everstep.store.protocol import Store
from everstep.store.retry import TRAINING
from everstep.transfer.memory import Arena

__all__ = ["Known", "Session", "give_up", "session_of"]

Known = dict[Digest, tuple[str, int, int]]
"""Where chunks lie, by digest: key of the pack, offset and length in bytes."""

_SHARED_AT_MOST: Final = 4

_shared: dict[str, Session] = {}
_shared_lock = threading.Lock()


@dataclass(slots=True, kw_only=True)
class Session:
    """The state of one writer in one process.

    ``joining`` is who took part in the last save. ``open`` is the save that this process has begun as coordinator
    and that is not decided yet, ``written`` the one it wrote a part of last. ``last`` is the checkpoint that it
    committed last, ``known`` where this rank's chunks of the save ``known_of`` lie.
    """

    store: str | Store
    listener: Listener
    process: int = field(default_factory=os.getpid)
    attempt: Attempt | None = None
    open: Save | None = None
    written: str = ""
    last: Checkpoint | None = None
    known: Known = field(default_factory=dict, repr=False)
    known_of: Save | None = None
    joining: tuple[Joining, ...] = ()
    arena: Arena = field(default_factory=lambda: Arena(pin=pin), repr=False)
    opened: Repository | None = None
    ranks: Ranks | None = None

    @property
    def repository(self) -> Repository:
        """The store, opened at the first use; made where there is none yet."""
        if os.getpid() != self.process:
            raise UsageError(
                "this StorageWriter was used before the process was forked",
                hint="use it in the process that made it, or start processes with spawn",
            )
        if self.opened is None:
            store = self.store
            found = (
                open_store(store, listener=self.listener, policy=TRAINING)
                if isinstance(store, str)
                else store
            )
            self.opened = open_repository(found, create=True)
        return self.opened

    def claimed(self, run: str, world: int) -> Attempt:
        """The attempt of this writer for a run and a number of ranks; claimed at the first save.

        A save that was left open is given up before.
        """
        self.give_up("another save began before this one was finished")
        held = self.attempt
        if held is None or (held.run, held.world) != (run, world):
            ensure_run(self.repository, parse_run(run))
            owner = f"dcp on {socket.gethostname()}:{self.process}"
            self.attempt = held = claim(self.repository, run, owner=owner, world=world)
            self.last = None
        return held

    def check_step(self, run: str, step: int) -> None:
        """Refuse a step that is not above the last one: the newest checkpoint is that with the highest step."""
        last = self.last
        if last is not None and last.run == run and step <= last.step:
            raise UsageError(
                f"step {step} is not above step {last.step}, which this writer has saved",
                hint="count steps upwards; a new StorageWriter begins a new attempt, in which any step is newer",
                step=step,
            )

    def committed(self, checkpoint: Checkpoint, save: Save, known: Known) -> None:
        """A save is a checkpoint; the next one may refer to its chunks."""
        self.remember(save, known)
        self.open, self.last = None, checkpoint

    def remember(self, save: Save, known: Known) -> None:
        """Where this rank's chunks of a save lie, should it become a base."""
        self.known, self.known_of = known, save

    def known_for(self, save: Save) -> Known:
        """The chunks that a save may refer to: of the save before, when it is among the bases that stand."""
        before = self.known_of
        if before is not None and any(
            (base.run, base.save) == (before.run, before.id) for base in save.bases
        ):
            return self.known
        return {}

    def give_up(self, why: str) -> None:
        """Abort the save that is open, if there is one. Best effort: the next attempt would do it too."""
        save, self.open = self.open, None
        if save is not None:
            give_up(self.repository, save, why)

    def close(self) -> None:
        """Let the memory and the connection to the other ranks go."""
        self.arena.close()
        if self.ranks is not None:
            self.ranks.close()
            self.ranks = None


def give_up(repository: Repository, save: Save, why: str) -> None:
    """Abort a save, best effort: the error that led here is told, not this one's."""
    try:
        abort(repository, save, why)
    except EverstepError:
        return


def session_of(key: str, store: str | Store, listener: Listener, *, shared: bool) -> Session:
    """The session of a writer; ``shared``: of a copy of it, which is one writer with the copies that came before.

    ``async_save`` in a process of its own sends a copy of the writer there for each save. They share a
    session, so that they claim one attempt and use the same memory again. Few are kept.
    """
    if not shared:
        return Session(store=store, listener=listener)
    with _shared_lock:
        found = _shared.pop(key, None) or Session(store=store, listener=listener)
        _shared[key] = found
        while len(_shared) > _SHARED_AT_MOST:
            _shared.pop(next(iter(_shared))).close()
        return found
