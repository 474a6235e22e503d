"""torchtitan's checkpoint settings that everstep does not have, refused by name."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from everstep.errors import UsageError
from everstep.retention import parse_keep

__all__ = ["check", "check_excluded", "retention"]

_RESTORED_ALWAYS = ("model", "train_state")


def check(config: Any) -> None:
    """Raise `UsageError` for a setting that everstep cannot keep."""
    retention(config)
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


def retention(config: Any) -> str | None:
    """The retention policy that the settings say. Raises `UsageError` for two of them, and for one that is none."""
    if config.keep_latest_k and config.keep is not None:
        raise UsageError(
            f"checkpoint.keep_latest_k={config.keep_latest_k} and checkpoint.keep={config.keep!r} both say what stays",
            hint="set one of them",
        )
    if not config.keep_latest_k:
        return parse_keep(config.keep).text() if config.keep is not None else None
    return f"last {config.keep_latest_k}"


def check_excluded(names: Collection[str], states: Collection[str]) -> None:
    """Raise `UsageError` for a name in ``exclude_from_loading`` that the trainer has no part of."""
    unknown = sorted(set(names) - set(states))
    if unknown:
        raise UsageError(
            f"checkpoint.exclude_from_loading names {', '.join(unknown)}, which the trainer does not have",
            hint=f"its parts are {', '.join(sorted(states))}",
        )
