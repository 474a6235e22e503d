"""A checkpoint as the fields that every ``--json`` document shows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from everstep.cli.output import jsonable

if TYPE_CHECKING:
    from everstep.repository.checkpoint import Checkpoint

__all__ = ["checkpoint_fields", "checkpoint_words"]


def checkpoint_fields(checkpoint: Checkpoint) -> dict[str, object]:
    """Run, step, attempt, save, created (seconds since 1970), bytes, stored_bytes, reason, metrics, tags and more."""
    parent = checkpoint.forked_from
    return {
        "run": checkpoint.run,
        "step": checkpoint.step,
        "attempt": checkpoint.attempt,
        "save": str(checkpoint.save),
        "created": checkpoint.created,
        "bytes": checkpoint.bytes,
        "stored_bytes": checkpoint.stored_bytes,
        "world": checkpoint.world,
        "reason": checkpoint.reason,
        "metrics": jsonable(checkpoint.metrics),
        "tags": list(checkpoint.tags),
        "forked_from": None if parent is None else {"run": parent.run, "save": parent.save},
    }


def checkpoint_words(checkpoint: Checkpoint) -> str:
    """``RUN@STEP``."""
    return f"{checkpoint.run}@{checkpoint.step}"
