"""Training state to named leaves with bytes, and back; torch and jax only where the program uses them."""

from everstep.state.conversion import assemble, flatten, match
from everstep.state.flat import Coverage, Flat, Piece, Restoration, Source, Target, Wanted
from everstep.state.per_rank import PerRank

__all__ = [
    "Coverage",
    "Flat",
    "PerRank",
    "Piece",
    "Restoration",
    "Source",
    "Target",
    "Wanted",
    "assemble",
    "flatten",
    "match",
]
