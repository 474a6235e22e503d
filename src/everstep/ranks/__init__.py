"""Who this process is among those that train together, and what they tell each other without collectives."""

from everstep.ranks.agreement import Agreement
from everstep.ranks.course import Asked, Kind
from everstep.ranks.exchange import Exchange
from everstep.ranks.identity import Identity, who_am_i
from everstep.ranks.opening import open_ranks
from everstep.ranks.ranks import Ranks
from everstep.ranks.words import Word

__all__ = ["Agreement", "Asked", "Exchange", "Identity", "Kind", "Ranks", "Word", "open_ranks", "who_am_i"]
