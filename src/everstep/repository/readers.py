"""Pins of those who read a checkpoint for long: what is pinned is not swept."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator

from everstep.errors import (
    AccessDenied,
    CheckpointPruned,
    EverstepError,
    MissingObject,
    ObjectNotFound,
    StoreFull,
)
from everstep.format.limits import FORMAT_MAJOR
from everstep.format.records import ReaderRecord
from everstep.format.wire import to_bytes
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.keys import READERS, reader_key
from everstep.repository.objects import create_same, listed, read_record
from everstep.repository.parallel import gather
from everstep.repository.repository import Repository
from everstep.repository.tombs import tombed
from everstep.store.protocol import Listed

__all__ = ["LONG_S", "PIN_S", "gone_or_pruned", "pinned", "readers", "reading", "reading_long"]

LONG_S = 20.0
"""A restore that takes longer pins what it reads."""
PIN_S = 7 * 86_400.0
"""Seconds by the store's clock for which a pin counts: one that a crash has left does not hold bytes for ever."""


@contextlib.contextmanager
def pinned(repo: Repository, checkpoint: Checkpoint, *, owner: str) -> Iterator[None]:
    """A pin on a checkpoint for a while; ``owner`` says whose, for people. Who may not write goes without."""
    reader = repo.entropy(16)
    record = ReaderRecord(
        format=FORMAT_MAJOR,
        reader=reader,
        run=checkpoint.run,
        save=str(checkpoint.save),
        owner=owner,
        created=repo.clock(),
    )
    with contextlib.suppress(AccessDenied, StoreFull):
        create_same(repo.store, reader_key(reader), to_bytes(record))
    try:
        yield
    finally:
        with contextlib.suppress(EverstepError):  # what is left counts for some days, and does no harm
            repo.store.delete(reader_key(reader))


@contextlib.contextmanager
def reading(repo: Repository, checkpoint: Checkpoint, *, owner: str) -> Iterator[None]:
    """Keep a checkpoint from being swept while it is read; ``owner`` says by whom, for people.

    The pin is there before the tomb is looked for: a prune either sees the pin or is seen. Raises
    `CheckpointPruned` at once. A pin counts for `PIN_S`; who reads longer may be told that it was pruned.
    """
    with pinned(repo, checkpoint, owner=owner):
        if tombed(repo, checkpoint.run, checkpoint.save):
            raise CheckpointPruned(
                f"{checkpoint} was pruned",
                hint=f"list what there is with: everstep ls {checkpoint.run}",
                run=checkpoint.run,
                step=checkpoint.step,
            )
        yield


@contextlib.contextmanager
def reading_long(repo: Repository, checkpoint: Checkpoint, *, after_s: float = LONG_S) -> Iterator[None]:
    """Pin a checkpoint once it has been read for ``after_s``: what takes seconds costs no request.

    Best effort, in a thread: who may not write, or cannot reach the store for a while, goes without. What is pruned
    before the pin is there may be swept; the reader then gets `CheckpointPruned` (`gone_or_pruned`), never other bytes.
    """
    ended = threading.Event()

    def pin() -> None:
        if ended.wait(after_s):
            return
        with (
            contextlib.suppress(EverstepError),
            pinned(repo, checkpoint, owner=f"{socket.gethostname()}:{os.getpid()}"),
        ):
            ended.wait()

    thread = threading.Thread(target=pin, name="everstep-reader", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def gone_or_pruned(repo: Repository, checkpoint: Checkpoint) -> Iterator[None]:
    """Around reading a checkpoint's packs: one that is gone because of a prune is no damage.

    Raises `CheckpointPruned` in the place of `MissingObject` when the checkpoint has a tomb.
    """
    try:
        yield
    except MissingObject as error:
        if not tombed(repo, checkpoint.run, checkpoint.save):
            raise
        raise CheckpointPruned(
            f"{checkpoint} was pruned while it was read",
            hint=f"list what there is with: everstep ls {checkpoint.run}",
            run=checkpoint.run,
            step=checkpoint.step,
        ) from error


def readers(repo: Repository, counts: Callable[[Listed], bool]) -> list[ReaderRecord]:
    """The pins that count; one list, and a request for each. One that is gone meanwhile is left out.

    Raises an `IntegrityError` for one that cannot be read: it may be of any checkpoint.
    """

    def read(found: Listed) -> ReaderRecord | None:
        try:
            return read_record(repo.store, found.key, ReaderRecord)
        except ObjectNotFound:
            return None

    pins = [found for found in listed(repo.store, READERS) if counts(found)]
    return [one for one in gather(read, pins) if one is not None]
