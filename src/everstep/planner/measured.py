"""What a run and a store tell of the figures that a plan needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from statistics import median

from everstep.cadence import Measured as Cost
from everstep.cadence.durations import spoken
from everstep.cadence.failures import FailureRate, NoticeChance, seen
from everstep.cadence.history import lives
from everstep.cadence.record import measured_before
from everstep.errors import StoreError
from everstep.planner.assumed import Measured, MeasuredRun
from everstep.repository.catalogue import checkpoints
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.reading import read_manifest
from everstep.repository.repository import Repository
from everstep.store.probe import Status, probe
from everstep.store.protocol import Store

__all__ = ["measure_bandwidth", "measure_run"]

_AFTER_ALL = 10**9
"""The number of an attempt that never was: seen from it, all others have ended."""
_NOTICE = NoticeChance(announced=4, lost=1)
"""What is thought of notices where machines are said to give them, before any was seen."""
_LOOKED_AT = 10
"""What a save cost is looked for in so many of the newest checkpoints."""


def measure_run(repo: Repository, run: str, *, expected_mtbf_s: float) -> MeasuredRun:
    """The figures of a run: sizes from its checkpoints, costs of a save from what the loop noted in them.

    ``mtbf`` is the posterior of the run's attempts over a prior of one interruption in ``expected_mtbf_s``; None where
    nothing was seen. The newest attempt may still run: its time counts, its end does not. Raises `RunNotFound`.
    """
    found = checkpoints(repo, run)
    where = f"run {run}"
    state = Measured(value=found[0].bytes, where=where) if found and found[0].bytes else None
    stored = [one.stored_bytes / one.bytes for one in found[:-1] if one.bytes]
    changed = Measured(value=min(1.0, median(stored)), where=where) if stored else None
    told = list(lives(repo, run, current=_AFTER_ALL))
    if told and told[-1].ended == "lost":
        told[-1] = replace(told[-1], ended="running")
    lived = seen(told)
    mtbf = chance = None
    if lived.up_s > 0:
        rate = FailureRate.prior(expected_mtbf_s).observed(lived.events, lived.up_s)
        words = f"{where}, {lived.events} interruptions in {spoken(lived.up_s)}"
        mtbf = Measured(value=rate.mtbf_s, where=words)
    if lived.events:
        announced = _NOTICE.observed(announced=lived.announced, lost=lived.lost)
        chance = Measured(
            value=announced.mean, where=f"{where}, {lived.announced} of {lived.events} announced"
        )
    return MeasuredRun(
        state=state,
        changed=changed,
        mtbf=mtbf,
        notice_chance=chance,
        **_of_saves(_last_save(repo, found), where),
    )


def measure_bandwidth(
    store: Store,
    *,
    name: str,
    size: int,
    clock: Callable[[], float],
    monotonic: Callable[[], float],
    random_bytes: Callable[[int], bytes],
) -> Measured:
    """Bytes a second that this machine uploads, by the doctor's probe, which removes what it wrote.

    Raises the error of the check that failed.
    """
    checks = probe(store, name=name, size=size, clock=clock, monotonic=monotonic, random_bytes=random_bytes)
    for check in checks:
        if check.name == "upload" and check.number:
            return Measured(value=check.number, where=f"a probe of {size // 10**6} MB in {store.url}")
        if check.status is Status.FAILED and check.error is not None:
            raise check.error
    raise StoreError(
        f"the bandwidth to {store.url} could not be measured", hint="give it: --bandwidth 500MB/s"
    )


def _last_save(repo: Repository, found: Sequence[Checkpoint]) -> Cost | None:
    """What the newest save had cost whose checkpoint tells of the one before it."""
    told = (measured_before(read_manifest(repo, one).meta) for one in islice(found, _LOOKED_AT) if one.reason)
    return next((cost for cost in told if cost is not None), None)


def _of_saves(cost: Cost | None, where: str) -> dict[str, Measured]:
    """Stall, bandwidth and slowdown, as far as they were noted."""
    if cost is None:
        return {}
    measured = {"stall": Measured(value=cost.stall_s, where=where)}
    upload = cost.durable_s - cost.stall_s
    if upload > 0 and cost.stored_bytes:
        measured["bandwidth"] = Measured(value=cost.stored_bytes / upload, where=where)
        if 0 <= cost.slowed_s < upload:
            measured["slowdown"] = Measured(value=cost.slowed_s / (upload - cost.slowed_s), where=where)
    return measured
