"""Checkpoint storage for distributed training: stop at any instant, go on bit for bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from everstep.errors import EverstepError

if TYPE_CHECKING:
    from everstep.checkpointer.conductor import Checkpointer
    from everstep.checkpointer.loading import load, rebuild
    from everstep.checkpointer.pending import Pending
    from everstep.repository.checkpoint import Checkpoint
    from everstep.state.architecture import Architecture
    from everstep.state.per_rank import PerRank
    from everstep.state.rng import RNG
    from everstep.state.stage import Stage

__all__ = [
    "RNG",
    "Architecture",
    "Checkpoint",
    "Checkpointer",
    "EverstepError",
    "Pending",
    "PerRank",
    "Stage",
    "load",
    "rebuild",
]
__version__ = "0.1.0"

_HOMES = {
    "Architecture": "everstep.state.architecture",
    "Checkpoint": "everstep.repository.checkpoint",
    "Checkpointer": "everstep.checkpointer.conductor",
    "Pending": "everstep.checkpointer.pending",
    "PerRank": "everstep.state.per_rank",
    "RNG": "everstep.state.rng",
    "Stage": "everstep.state.stage",
    "load": "everstep.checkpointer.loading",
    "rebuild": "everstep.checkpointer.loading",
}


def __getattr__(name: str) -> Any:
    """Public names load when they are first used, so that the command line starts fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'everstep' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
