"""What differs from rank to rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from everstep.errors import EverstepError, RestoreError
from everstep.state.flattening import Flattening
from everstep.state.generators import give_generator, is_generator
from everstep.state.memory import MISSING, Later
from everstep.state.objects import Stateful, hand_over
from everstep.state.restoring import Restoring
from everstep.state.rng import RNG, set_streams
from everstep.state.saved import Saved

__all__ = ["PerRank", "PerRankKind"]

Resize = Callable[[list[Any], int, int], object]


class PerRank:
    """A part of the state that each rank has its own of: a loader's position, random generators.

    ``value`` is the part; a plain value or a tuple in it is replaced on restore.

    Restored on as many ranks as it was saved on, each rank takes its own part. On another number, rank r takes
    part r, and a rank beyond the saved ones keeps the value it has. ``resize`` decides otherwise: it is called on
    each rank with all saved parts in the order of ranks, as `everstep.load` gives them, this rank's number, and
    how many ranks there are now; what it returns goes where a restored part would go: into ``load_state_dict`` of
    an object, into a random generator, into a dict by key, else in the place of the value. Either way
    `Coverage.resized` names the part.
    """

    def __init__(self, value: object, resize: Resize | None = None) -> None:
        self.value = value
        self.resize = resize

    def __repr__(self) -> str:
        return f"PerRank({self.value!r})"


class PerRankKind:
    """Filed under the rank's number."""

    def claims(self, value: object) -> bool:
        """Whether it is a `PerRank`."""
        return isinstance(value, PerRank)

    def flatten(self, value: PerRank, path: str, into: Flattening) -> None:
        """Write this rank's part, which no other rank has."""
        into.not_in_a_state(value, path)
        with into.held_by((into.rank,)):
            into.mapping(path, "per_rank", [(into.rank, value.value)])

    def restore(self, live: PerRank, saved: Saved, into: Restoring) -> Later:
        """Put back this rank's part, or what ``resize`` makes of all parts."""
        entry = saved.container
        if entry is None or entry.type != "per_rank":
            return into.problem(saved.path, "is PerRank in the state and not in the checkpoint")
        child = saved.child(into.rank)
        if child is not None and into.skips(child.path):
            into.left_out(child.path)
            return lambda: live
        ranks = len(saved.children)
        now = ranks if into.world is None or into.partial else into.world
        if child is None or ranks != now:
            into.resized(saved.path)
            if live.resize is not None:
                return _resized(live, live.resize, saved, into)
        if child is None:
            return lambda: live
        later = into.restore(live.value, child)

        def finish() -> PerRank:
            live.value = later()
            return live

        return finish


def _resized(live: PerRank, resize: Resize, saved: Saved, into: Restoring) -> Later:
    parts = sorted(saved.pairs(), key=lambda pair: int(pair[0]))
    with into.freely():
        found = [into.build(child, lambda: MISSING) for _, child in parts]
    world = len(parts) if into.world is None else into.world

    def finish() -> PerRank:
        restored = [later() for later in found]
        try:
            made = resize(restored, into.rank, world)
        except EverstepError:
            raise
        except Exception as error:
            raise RestoreError(
                f"resize of {saved.path} failed for rank {into.rank} of {world}: {error!r}", path=saved.path
            ) from error
        live.value = _given(live.value, made, saved.path)
        return live

    return finish


def _given(live: Any, made: Any, path: str) -> Any:
    """The live value with what ``resize`` returned in it, or that in its place."""
    if isinstance(live, RNG):
        set_streams(live, made, path)
    elif is_generator(live):
        give_generator(live, made, path)
    elif isinstance(live, dict) and isinstance(made, Mapping):
        for key, value in made.items():
            live[key] = _given(live.get(key), value, path)
    elif isinstance(live, Stateful):
        hand_over(live, made, path)
    else:
        return made
    return live
