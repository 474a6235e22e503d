"""Who this process is among those that train together, and what they tell each other without collectives."""

from everstep.ranks.exchange import Exchange
from everstep.ranks.identity import Identity, who_am_i
from everstep.ranks.opening import open_ranks
from everstep.ranks.ranks import Ranks
from everstep.ranks.words import Word

__all__ = ["Exchange", "Identity", "Ranks", "Word", "open_ranks", "who_am_i"]
