"""That a run in another store is the same run: the same record, and the same attempts."""

from __future__ import annotations

from msgspec.structs import replace

from everstep.errors import AlreadyExists, UsageError
from everstep.format.wire import to_bytes
from everstep.repository.fence import attempts_after, read_attempt
from everstep.repository.keys import attempt_key, run_key
from everstep.repository.objects import create_same
from everstep.repository.parallel import gather
from everstep.repository.repository import Repository
from everstep.repository.runs import find_run

__all__ = ["copy_lineage"]


def copy_lineage(
    source: Repository, run: str, destination: Repository, name: str, *, last_attempt: int
) -> None:
    """Make the run ``name`` in the destination, with the records of the attempts up to ``last_attempt``.

    So a launch there gets a higher number than all that was copied. Raises `UsageError` when there is a
    run of this name with another record or another attempt: its history is not this one.
    """
    record = replace(find_run(source, run), run=name)
    _same(destination, run_key(name), to_bytes(record), name, "begun elsewhere")
    numbers = [number for number in attempts_after(source, run, 0) if number <= last_attempt]

    def claim_again(number: int) -> None:
        attempt = replace(read_attempt(source, run, number), run=name)
        _same(destination, attempt_key(name, number), to_bytes(attempt), name, f"another attempt {number}")

    gather(claim_again, numbers)


def _same(destination: Repository, key: str, body: bytes, name: str, difference: str) -> None:
    try:
        create_same(destination.store, key, body)
    except AlreadyExists as error:
        raise UsageError(
            f"{destination.store.url} has a run named {name!r} with another history ({difference})",
            hint="copy it under another name, or into another store",
            run=name,
            key=key,
        ) from error
