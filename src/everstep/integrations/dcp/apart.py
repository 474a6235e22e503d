"""Saves with ``use_collectives=False``: the ranks agree through an exchange of their own, each wait with a deadline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from everstep.config import process_settings
from everstep.format.entries import Container, Entry
from everstep.format.outline import Outline
from everstep.format.wire import from_bytes, to_bytes
from everstep.integrations.dcp.handing import Begun, Told
from everstep.integrations.dcp.session import Session
from everstep.integrations.dcp.tree import Leaf
from everstep.ranks import Identity, Ranks, Word, open_ranks
from everstep.repository.attempts import Attempt
from everstep.repository.checkpoint import Checkpoint
from everstep.repository.saves import committed_bytes, parse_committed

__all__ = ["begin_apart", "end_apart", "united"]

_BEGIN, _END = "dcp/begin", "dcp/end"


class _Start(msgspec.Struct, frozen=True, kw_only=True):
    """What rank 0 tells the others: its attempt, and the save that it began."""

    run: str
    number: int
    id: str
    owner: str
    world: int
    announced: bytes


class _Leaf(msgspec.Struct, frozen=True, kw_only=True):
    keys: tuple[str | int, ...]
    entries: tuple[Entry, ...]


class _End(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank tells when it has stored its part."""

    leaves: tuple[_Leaf, ...]
    outline: bytes | None


def begin_apart(
    session: Session, rank: int, world: int, begin: Callable[[], Begun], *, run: str, timeout_s: float
) -> Begun:
    """The save that rank 0 begins, on all ranks.

    Raises on all ranks what ``begin`` raises, and `RanksMissing` naming those that do not come.
    """
    ranks = session.ranks
    if ranks is None:
        me = Identity(rank=rank, world=world)
        store = session.repository.store
        ranks = session.ranks = open_ranks(process_settings(), me, store=store, run=f"dcp/{run}")

    def first(_words: Mapping[int, bytes]) -> bytes:
        begun = begin()
        held = begun.attempt
        start = _Start(
            run=held.run,
            number=held.number,
            id=held.id,
            owner=held.owner,
            world=held.world,
            announced=begun.announced,
        )
        return msgspec.json.encode(start)

    start = msgspec.json.decode(ranks.settle(_BEGIN, b"", first, timeout_s=timeout_s), type=_Start)
    attempt = Attempt(run=start.run, number=start.number, id=start.id, owner=start.owner, world=start.world)
    return Begun(
        attempt=attempt,
        announced=start.announced,
        bases=(),
        rank=rank,
        ranks={each: each for each in range(world)},
        apart=True,
    )


def end_apart(
    ranks: Ranks,
    mine: Told | BaseException,
    commit: Callable[[list[Told]], Checkpoint],
    *,
    timeout_s: float,
) -> Checkpoint:
    """The checkpoint, on all ranks, when all have stored their parts; ``commit`` runs on rank 0.

    An error that one rank tells is raised on all.
    """
    word: Word = mine if isinstance(mine, BaseException) else _encoded(mine)

    def decide(words: Mapping[int, bytes]) -> bytes:
        return committed_bytes(commit([_decoded(words[rank]) for rank in sorted(words)]))

    return parse_committed(ranks.settle(_END, word, decide, timeout_s=timeout_s))


def united(told: Sequence[Told]) -> list[Leaf]:
    """All leaves as rank 0 describes them: of what is another rank's own only that it is there."""
    leaves = list(told[0].leaves)
    known = {leaf.keys for leaf in leaves}
    for one in told[1:]:
        for leaf in one.leaves:
            first = leaf.entries[0]
            if isinstance(first, Container) and first.type == "per_rank":
                if leaf.keys not in known:
                    hollow = Container(path=first.path, type="per_rank", keys=[])
                    leaves.append(Leaf(keys=leaf.keys, entries=(hollow,)))
                    known.add(leaf.keys)
            else:
                leaves.append(leaf)
    return leaves


def _encoded(told: Told) -> bytes:
    return msgspec.json.encode(
        _End(
            leaves=tuple(_Leaf(keys=leaf.keys, entries=leaf.entries) for leaf in told.leaves),
            outline=None if told.outline is None else to_bytes(told.outline),
        )
    )


def _decoded(word: bytes) -> Told:
    end = msgspec.json.decode(word, type=_End)
    return Told(
        leaves=tuple(Leaf(keys=leaf.keys, entries=leaf.entries) for leaf in end.leaves),
        outline=None if end.outline is None else from_bytes(end.outline, Outline, what="a rank's outline"),
    )
