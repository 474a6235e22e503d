"""Training state to named leaves with bytes, and back; torch and jax only where the program uses them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everstep.state.architecture import Architecture, rebuild_model
    from everstep.state.conversion import assemble, flatten, match
    from everstep.state.flat import Coverage, Flat, Piece, Restoration, Source, Target, Wanted
    from everstep.state.per_rank import PerRank
    from everstep.state.rng import RNG
    from everstep.state.stage import Stage

__all__ = [
    "RNG",
    "Architecture",
    "Coverage",
    "Flat",
    "PerRank",
    "Piece",
    "Restoration",
    "Source",
    "Stage",
    "Target",
    "Wanted",
    "assemble",
    "flatten",
    "match",
    "rebuild_model",
]

_HOMES = {
    "RNG": "rng",
    "Stage": "stage",
    "Architecture": "architecture",
    "PerRank": "per_rank",
    "assemble": "conversion",
    "flatten": "conversion",
    "match": "conversion",
    "rebuild_model": "architecture",
}


def __getattr__(name: str) -> Any:
    """Names load when they are first used: the types of `flat` are needed where NumPy is not."""
    if name not in __all__:
        raise AttributeError(f"module 'everstep.state' has no attribute {name!r}")
    return getattr(import_module(f"everstep.state.{_HOMES.get(name, 'flat')}"), name)
