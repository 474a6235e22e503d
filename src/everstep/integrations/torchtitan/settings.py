"""torchtitan's checkpoint settings that everstep does not have, refused by name."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from everstep.errors import NotYetSupported, UsageError

__all__ = ["check", "check_excluded"]

_RESTORED_ALWAYS = ("model", "train_state")


def check(config: Any) -> None:
    """Raise `UsageError` for a setting that everstep cannot keep."""
    if config.keep_latest_k:
        raise NotYetSupported(
            f"checkpoint.keep_latest_k={config.keep_latest_k}: this version removes no checkpoints",
            hint="set checkpoint.keep_latest_k to 0; unchanged bytes are stored once for all checkpoints",
        )
    if config.last_save_model_only and not config.last_save_in_hf:
        raise UsageError(
            "checkpoint.last_save_model_only=True would make a last checkpoint that no training can resume from",
            hint="set it to False, and `everstep export` the model of any checkpoint; or set last_save_in_hf too",
        )
    for name in _RESTORED_ALWAYS:
        if name in config.exclude_from_loading:
            raise UsageError(
                f"checkpoint.exclude_from_loading names {name}, which tells where the training goes on",
                hint="to begin anew from a model, set checkpoint.initial_load_path in a new run",
            )


def check_excluded(names: Collection[str], states: Collection[str]) -> None:
    """Raise `UsageError` for a name in ``exclude_from_loading`` that the trainer has no part of."""
    unknown = sorted(set(names) - set(states))
    if unknown:
        raise UsageError(
            f"checkpoint.exclude_from_loading names {', '.join(unknown)}, which the trainer does not have",
            hint=f"its parts are {', '.join(sorted(states))}",
        )
