"""The start of an attempt: claim a number, then settle what older attempts left undecided."""

from __future__ import annotations

from msgspec.structs import replace

from everstep.errors import AlreadyExists, Fenced, InvalidName, ObjectNotFound, StoreUnavailable
from everstep.format.ids import parse_run
from everstep.format.limits import FORMAT_MAJOR, MAX_RANKS
from everstep.format.records import AttemptRecord
from everstep.format.wire import to_bytes
from everstep.repository.fence import Attempt, attempts_after, check_fence, find_attempt, read_attempt
from everstep.repository.keys import attempt_key
from everstep.repository.opening import check_condition
from everstep.repository.parallel import gather
from everstep.repository.repository import Repository
from everstep.repository.runs import ensure_run
from everstep.repository.settle import settle

__all__ = ["Attempt", "attempts", "check_fence", "claim", "find_attempt"]

_LAST = 10**8 - 1


def attempts(repo: Repository, run: str) -> list[AttemptRecord]:
    """The records of a run's attempts, oldest first."""
    return gather(lambda number: read_attempt(repo, run, number), attempts_after(repo, run, 0))


def claim(
    repo: Repository,
    run: str,
    *,
    owner: str,
    world: int = 1,
    number: int | None = None,
    resumed_from: str = "",
    keep: str = "",
    every: str = "",
) -> Attempt:
    """Begin a new attempt of a run: afterwards no older attempt can commit, and the newest checkpoint stands.

    The number is the next free one, or ``number``, given by a launcher: then it must be above all numbers
    that were claimed before, else `Fenced` is raised. ``owner`` says who this is, for people; ``world``
    is the number of ranks, ``keep`` and ``every`` what this launch goes by. The record's own creation is tried
    a second time with other bytes, which the store must refuse: else `ConditionIgnored`.
    """
    ensure_run(repo, parse_run(run))
    if not 1 <= world <= MAX_RANKS:
        raise InvalidName(f"a world of {world} ranks is not between 1 and {MAX_RANKS}", world=world)
    if number is not None and not 1 <= number <= _LAST:
        raise InvalidName(f"attempt {number} is not between 1 and {_LAST}", attempt=number)
    wish = AttemptRecord(
        format=FORMAT_MAJOR,
        run=run,
        attempt=number or 0,
        id=repo.entropy(16),
        created=repo.clock(),
        owner=owner,
        world=world,
        resumed_from=resumed_from,
        keep=keep,
        every=every,
    )
    record = _claim(repo, wish)
    other = replace(record, id=repo.entropy(16))
    check_condition(repo.store, attempt_key(run, record.attempt), to_bytes(other))
    attempt = Attempt(run=run, number=record.attempt, id=record.id, owner=owner, world=world)
    settle(repo, attempt)
    return attempt


def _claim(repo: Repository, wish: AttemptRecord) -> AttemptRecord:
    """Create the record under the number wished for, or with 0 under the next free one."""
    taken = attempts_after(repo, wish.run, 0)
    highest = taken[-1] if taken else 0
    if wish.attempt:
        if wish.attempt <= highest:
            raise _too_late(wish, highest)
        if not _create(repo, wish):
            raise _too_late(wish, wish.attempt)
        return wish
    while True:
        highest += 1
        record = replace(wish, attempt=highest)
        if _create(repo, record):
            return record


def _create(repo: Repository, record: AttemptRecord) -> bool:
    """Create the record; whether the number is ours, told by the random id when the answer is unclear."""
    try:
        repo.store.create(attempt_key(record.run, record.attempt), to_bytes(record))
    except (AlreadyExists, StoreUnavailable) as error:
        try:
            return read_attempt(repo, record.run, record.attempt).id == record.id
        except ObjectNotFound:
            raise error from None
    return True


def _too_late(wish: AttemptRecord, highest: int) -> Fenced:
    return Fenced(
        f"attempt {wish.attempt} of run {wish.run!r} cannot be claimed: attempt {highest} was claimed before",
        hint="let the launcher count EVERSTEP_ATTEMPT up with every launch, or leave it unset",
        run=wish.run,
        attempt=wish.attempt,
        newer=highest,
    )
