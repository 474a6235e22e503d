"""Rank 0's part: the words of all ranks, or the reason why there are not all."""

from __future__ import annotations

from collections.abc import Callable

from everstep.errors import UsageError
from everstep.ranks.waiting import Waiting, missing
from everstep.ranks.words import decode

__all__ = ["gather"]


def gather(
    find: Callable[[str], bytes | None],
    topic: str,
    place: str,
    mine: bytes,
    *,
    world: int,
    waiting: Waiting,
    timeout_s: float,
) -> dict[int, bytes]:
    """Each rank's word by its number.

    Ranks are asked for one after another, so that waiting costs two questions at a time however many
    they are: for the first who has not come, and for an error that any of them may have told. Raises that error;
    `UsageError` when a rank is at another topic; `RanksMissing` naming all who have not come at the deadline.
    """
    words = {0: mine}
    until = waiting.deadline(timeout_s)
    for rank in range(1, world):

        def ask(rank: int = rank) -> bytes | None:
            _raise_told(find(f"{place}/error"))
            return find(f"{place}/word/{rank}")

        # a word that is there already needs no look for errors
        text = find(f"{place}/word/{rank}") or waiting.first(ask, until)
        if text is None:
            _raise_told(find(f"{place}/error"))
            raise missing(_absent(find, place, rank, world), topic, timeout_s)
        words[rank] = _word(text, topic, rank)
    return words


def _absent(find: Callable[[str], bytes | None], place: str, first: int, world: int) -> tuple[int, ...]:
    """Those who have not come, ``first`` among them."""
    return (first, *(rank for rank in range(first + 1, world) if find(f"{place}/word/{rank}") is None))


def _word(text: bytes, topic: str, rank: int) -> bytes:
    said = decode(text)
    if isinstance(said.word, BaseException):
        raise said.word
    if said.topic != topic:
        raise UsageError(
            f"rank {rank} is at {said.topic!r} while rank 0 is at {topic!r}",
            hint="every rank must restore, save and stop at the same points of the program",
            rank=rank,
        )
    return said.word


def _raise_told(text: bytes | None) -> None:
    if text is not None:
        word = decode(text).word
        assert isinstance(word, BaseException), "an error was told"
        raise word
