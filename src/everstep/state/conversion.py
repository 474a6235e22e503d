"""Training state to entries and bytes, and back."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from everstep.errors import UsageError
from everstep.format.entries import Entry
from everstep.state.containers import put
from everstep.state.flat import Flat, Restoration
from everstep.state.flattening import Flattening
from everstep.state.kinds import fresh, known
from everstep.state.picking import pick
from everstep.state.restoring import Restoring
from everstep.state.saved import tree

__all__ = ["assemble", "flatten", "match"]


def flatten(state: Mapping[str, object], *, rank: int = 0, world: int | None = None) -> Flat:
    """The state as entries in pre-order and the bytes that go with them, of one rank; it refers to live memory.

    Raises `UnsupportedLeaf` with path and type, `UsageError` for a tensor on ranks beyond the ``world``.
    """
    into = Flattening(known().live, rank=rank, world=rank + 1 if world is None else world)
    with _uncollected():
        into.visit(_root(state), "")
        return into.done()


def match(
    state: Mapping[str, object],
    entries: Sequence[Entry],
    *,
    strict: bool = True,
    skip: Sequence[str] = (),
    rank: int = 0,
    world: int | None = None,
) -> Restoration[None]:
    """Where saved bytes go in a live state: in place, where that can be; ``finish`` puts the rest in.

    ``skip`` are patterns of paths (``*`` matches ``/`` too) that are left as they are, with all below
    them; they need ``strict=False``. Raises `RestoreMismatch` with everything that does not fit, and
    changes nothing before the bytes are read. ``world`` is the number of ranks that restore, where it is known.
    """
    if strict and skip:
        raise UsageError(
            "skip names what to leave out, and strict=True leaves nothing out", hint="pass strict=False"
        )
    if not strict and not skip:
        raise UsageError(
            "strict=False needs to be told what to leave out",
            hint="name it: skip=['model/head.*']; a first restore with strict=True lists what differs",
        )
    kinds = known()
    into = Restoring(kinds.live, kinds.builders, rank=rank, world=world, skip=skip, fresh=fresh)
    root = _root(state)
    later = into.restore(root, tree(entries))

    def finish() -> None:
        later()
        if root is not state:
            for key in root:
                put(state, key, root[key], "")

    return into.done(finish)


def assemble(entries: Sequence[Entry], *, only: Sequence[str] = ()) -> Restoration[object]:
    """The saved state anew, without a live one: ``finish`` gives the nesting that was saved.

    ``only`` are patterns of paths (``*`` matches ``/`` too): what they name and all below it comes, in the containers
    that lead there, and nothing else is read; without any, all comes. Raises `UsageError` for one that names nothing.
    Arrays are torch's or jax's where these are installed, else NumPy's. Objects come as their state dicts,
    dataclasses as dicts, `PerRank` as a dict by rank, enums as `everstep.format.values.EnumValue`.
    """
    kinds = known()
    into = Restoring(kinds.live, kinds.builders, rank=0, free=True, fresh=fresh)
    root = tree(entries)
    return into.done(into.build(pick(root, only) if only else root))


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the garbage collector: training waits here, and a full collection takes longer than all of this."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def _root(state: Mapping[str, object]) -> Any:
    if not isinstance(state, Mapping):
        raise UsageError(
            f"the state is a {type(state).__name__}; it must be a dict of names to parts",
            hint="for instance {'model': model, 'optimizer': optimizer}",
        )
    return state if isinstance(state, dict) else dict(state)
