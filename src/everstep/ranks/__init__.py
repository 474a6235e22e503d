"""Who this process is among those that train together."""

from everstep.ranks.identity import Identity, who_am_i

__all__ = ["Identity", "who_am_i"]
