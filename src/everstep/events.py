"""What happens, told as it happens: progress, logging and metrics listen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = [
    "CadenceDecided",
    "Event",
    "FellBack",
    "Listener",
    "PartsResized",
    "PruneFailing",
    "Pruned",
    "RequestsUnheard",
    "Retried",
    "SaveCommitted",
    "SaveFailing",
    "SaveSkipped",
    "SaveStaged",
    "SaveStarted",
    "Transferred",
    "silent",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The root of all events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveStarted(Event):
    """A save was asked for at a step."""

    run: str
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveStaged(Event):
    """The state is copied; training goes on. ``stall_s`` is how long it stood still, in seconds."""

    run: str
    step: int
    bytes: int
    stall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveCommitted(Event):
    """The checkpoint exists and is durable."""

    run: str
    step: int
    bytes: int
    stored_bytes: int
    durable_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveSkipped(Event):
    """A save was due while one was in flight, and the user chose to skip."""

    run: str
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveFailing(Event):
    """A save in the background failed; the next call raises the error."""

    run: str
    step: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Transferred(Event):
    """Bytes moved so far of one upload, download or verification."""

    what: str
    done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried(Event):
    """A store request failed in a way that may pass, and is tried again after ``wait_s``."""

    verb: str
    key: str
    error: str
    wait_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FellBack(Event):
    """A damaged checkpoint was passed over for an older one."""

    run: str
    damaged_step: int
    to_step: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsResized(Event):
    """What was saved by each rank on its own was restored on another number of ranks, by the rule of `PerRank`."""

    run: str
    step: int
    paths: tuple[str, ...]
    saved_world: int
    world: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CadenceDecided(Event):
    """The interval between saves was changed, from and to seconds, and why."""

    run: str
    step: int
    from_s: float
    to_s: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned(Event):
    """The retention policy was applied: steps that were given up, and what the store lost, in objects and bytes."""

    run: str
    steps: tuple[int, ...]
    objects: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneFailing(Event):
    """The retention policy could not be applied in the background; nothing live was touched, training goes on."""

    run: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestsUnheard(Event):
    """Rank 0 could not look for requests of `everstep save`, or answer one; it goes on looking."""

    run: str
    error: str


Listener = Callable[[Event], None]


def silent(_event: Event) -> None:
    """The listener that does nothing."""
