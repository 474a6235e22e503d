"""What differs from rank to rank."""

from __future__ import annotations

from everstep.state.flattening import Flattening
from everstep.state.memory import Later
from everstep.state.restoring import Restoring
from everstep.state.saved import Saved

__all__ = ["PerRank", "PerRankKind"]


class PerRank:
    """A part of the state that each rank has its own of: a loader's position, random generators.

    ``value`` is the part; a plain value or a tuple in it is replaced on restore.
    """

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"PerRank({self.value!r})"


class PerRankKind:
    """Filed under the rank's number."""

    def claims(self, value: object) -> bool:
        """Whether it is a `PerRank`."""
        return isinstance(value, PerRank)

    def flatten(self, value: PerRank, path: str, into: Flattening) -> None:
        """Write this rank's part."""
        into.not_in_a_state(value, path)
        into.mapping(path, "per_rank", [(into.rank, value.value)])

    def restore(self, live: PerRank, saved: Saved, into: Restoring) -> Later:
        """Put back this rank's part."""
        entry = saved.container
        if entry is None or entry.type != "per_rank":
            return into.problem(saved.path, "is PerRank in the state and not in the checkpoint")
        child = saved.child(into.rank)
        if child is None:
            ranks = ", ".join(str(key) for key, _ in saved.pairs())
            what = f"has no part for rank {into.rank}; the checkpoint has those of ranks {ranks}"
            return into.problem(saved.path, what)
        if into.skips(child.path):
            into.left_out(child.path)
            return lambda: live
        later = into.restore(live.value, child)

        def finish() -> PerRank:
            live.value = later()
            return live

        return finish
