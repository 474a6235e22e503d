"""Events as lines of the standard library's logging."""

from __future__ import annotations

import logging

from everstep.events import (
    CadenceDecided,
    Event,
    FellBack,
    PartsResized,
    Pruned,
    PruneFailing,
    RequestsUnheard,
    Retried,
    SaveCommitted,
    SaveFailing,
    SaveSkipped,
    SaveStaged,
)

__all__ = ["log_event", "log_trouble"]

_log = logging.getLogger("everstep")


def log_event(event: Event) -> None:
    """A line for what a person should see; progress is left to other listeners."""
    match event:
        case SaveStaged(run=run, step=step, bytes=size, stall_s=stall):
            _log.debug("%s step %d: %s staged in %.3f s", run, step, _size(size), stall)
        case SaveCommitted(run=run, step=step, bytes=size, stored_bytes=stored, durable_s=durable):
            _log.info(
                "saved %s step %d: %s, %s new, durable after %.2f s",
                run, step, _size(size), _size(stored), durable,
            )  # fmt: skip
        case SaveSkipped(run=run, step=step):
            _log.warning("save of %s step %d skipped: the one before is still under way", run, step)
        case CadenceDecided(run=run, from_s=before, to_s=now, why=why):
            _log.info("%s: a save every %.0f s instead of %.0f s: %s", run, now, before, why)
        case Pruned(run=run, steps=steps, objects=objects, bytes=size):
            given_up = ", ".join(map(str, steps)) or "none"
            _log.info("pruned %s: steps %s; %d objects, %s gone", run, given_up, objects, _size(size))
        case PartsResized(run=run, step=step, paths=paths, saved_world=saved, world=world):
            _log.warning(
                "%s step %d was saved on %d ranks and is restored on %d: by rank are %s",
                run, step, saved, world, ", ".join(paths),
            )  # fmt: skip
        case _:
            log_trouble(event)


def log_trouble(event: Event) -> None:
    """A line for what is not as it should be: what went well, rank 0 tells for all."""
    match event:
        case SaveFailing(run=run, step=step, error=error):
            _log.error("save of %s step %d failed: %s", run, step, error)
        case FellBack(run=run, damaged_step=damaged, to_step=to, error=error):
            _log.error(
                "CHECKPOINT DAMAGED: %s step %d does not verify (%s); going on from step %d",
                run, damaged, error, to,
            )  # fmt: skip
        case PruneFailing(run=run, error=error):
            _log.error("%s was not pruned, and nothing that is kept was touched: %s", run, error)
        case RequestsUnheard(run=run, error=error):
            _log.warning("%s: requests for saves cannot be read, trying on: %s", run, error)
        case Retried(verb=verb, key=key, error=error, wait_s=wait):
            _log.warning("%s %s: %s; trying again in %.1f s", verb, key, error, wait)
        case _:
            pass


def _size(count: int) -> str:
    """Bytes in decimal units, for people: ``1.49 GB``."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count} B"
