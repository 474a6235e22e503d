"""Events as lines of the standard library's logging."""

from __future__ import annotations

import logging

from everstep.events import Event, FellBack, Retried, SaveCommitted, SaveFailing, SaveSkipped, SaveStaged

__all__ = ["log_event"]

_log = logging.getLogger("everstep")
_GB = 1e9


def log_event(event: Event) -> None:
    """A line for what a person should see; progress is left to other listeners."""
    match event:
        case SaveStaged(run=run, step=step, bytes=size, stall_s=stall):
            _log.debug("%s step %d: %.3f GB staged in %.3f s", run, step, size / _GB, stall)
        case SaveCommitted(run=run, step=step, bytes=size, stored_bytes=stored, durable_s=durable):
            _log.info(
                "saved %s step %d: %.3f GB, %.3f GB new, durable after %.2f s",
                run, step, size / _GB, stored / _GB, durable,
            )  # fmt: skip
        case SaveSkipped(run=run, step=step):
            _log.warning("save of %s step %d skipped: the one before is still under way", run, step)
        case SaveFailing(run=run, step=step, error=error):
            _log.error("save of %s step %d failed: %s", run, step, error)
        case FellBack(run=run, damaged_step=damaged, to_step=to, error=error):
            _log.error(
                "CHECKPOINT DAMAGED: %s step %d does not verify (%s); going on from step %d",
                run, damaged, error, to,
            )  # fmt: skip
        case Retried(verb=verb, key=key, error=error, wait_s=wait):
            _log.warning("%s %s: %s; trying again in %.1f s", verb, key, error, wait)
        case _:
            pass
