"""How the ranks of one launch find each other where words of earlier launches may still lie."""

from __future__ import annotations

import msgspec

from everstep.errors import RanksMissing, UsageError
from everstep.ranks.exchange import Exchange
from everstep.ranks.identity import Identity
from everstep.ranks.waiting import Waiting, missing
from everstep.ranks.words import decode, encode

__all__ = ["meet"]

_TOPIC = "everstep.meeting"


class _Join(msgspec.Struct, frozen=True):
    token: str
    world: int


class _Answer(msgspec.Struct, frozen=True):
    tokens: list[str | None]
    error: bytes = b""


def meet(exchange: Exchange, me: Identity, *, token: str, waiting: Waiting, timeout_s: float) -> str:
    """The prefix of keys of this meeting, the same on all ranks, and used by no other.

    Each rank has a random token. Rank 0 puts its own under the first number that is free; the others join the
    newest number they find, and rank 0 answers with the tokens of all who joined. A rank whose token is in the answer
    is in; one that joined a meeting of an earlier launch is not in that answer, and goes on to the next
    number. So nothing that lies in the store from before (torchrun restarts its workers beside the same store, a
    program may destroy its process group and make it again) can be taken for a word of this launch.
    Raises `RanksMissing` naming the ranks, and `UsageError` when a rank counts another world.
    """
    if me.world == 1:
        return f"m/{token}/"
    if me.rank == 0:
        return _host(exchange, me, token, waiting, timeout_s)
    return _guest(exchange, me, token, waiting, timeout_s)


def _host(exchange: Exchange, me: Identity, token: str, waiting: Waiting, timeout_s: float) -> str:
    number = 1
    while not _taken(exchange, number, token):
        number += 1
    prefix = f"m/{token}/"
    until = waiting.deadline(timeout_s)
    tokens: list[str | None] = [token, *(None for _ in range(1, me.world))]
    try:
        for rank in range(1, me.world):
            key = f"{prefix}join/{rank}"
            text = waiting.first(lambda key=key: exchange.find(key), until)  # type: ignore[misc]
            tokens[rank] = None if text is None else _joined(text, rank, me.world)
        absent = tuple(rank for rank, joined in enumerate(tokens) if joined is None)
        if absent:
            raise missing(absent, _TOPIC, timeout_s)
    except (RanksMissing, UsageError) as error:
        exchange.put(f"{prefix}in", msgspec.msgpack.encode(_Answer(tokens, encode(_TOPIC, error))))
        raise
    exchange.put(f"{prefix}in", msgspec.msgpack.encode(_Answer(tokens)))
    return prefix


def _taken(exchange: Exchange, number: int, token: str) -> bool:
    """Whether the number is ours now."""
    if exchange.find(f"meet/{number}") is not None:
        return False
    exchange.put(f"meet/{number}", token.encode())
    return exchange.find(f"meet/{number}") == token.encode()


def _joined(text: bytes, rank: int, world: int) -> str:
    join = msgspec.msgpack.decode(text, type=_Join)
    if join.world != world:
        raise UsageError(
            f"rank {rank} counts {join.world} ranks, and rank 0 counts {world}",
            hint="start all ranks of a run with one launcher and the same number of ranks",
            rank=rank,
        )
    return join.token


def _guest(exchange: Exchange, me: Identity, token: str, waiting: Waiting, timeout_s: float) -> str:
    until = waiting.deadline(timeout_s + waiting.margin_s)
    number, host = 0, ""
    refused: BaseException | None = None
    mine = msgspec.msgpack.encode(_Join(token, me.world))

    def ask() -> str | None:
        nonlocal number, host, refused
        while (newer := exchange.find(f"meet/{number + 1}")) is not None:
            number, host = number + 1, newer.decode()
            exchange.put(f"m/{host}/join/{me.rank}", mine)
        answer = exchange.find(f"m/{host}/in") if host else None
        if answer is None:
            return None
        said = msgspec.msgpack.decode(answer, type=_Answer)
        inside = len(said.tokens) > me.rank and said.tokens[me.rank] == token
        refused = _error(said)
        if inside and refused is not None:
            raise refused
        return f"m/{host}/" if inside else None

    prefix = waiting.first(ask, until)
    if prefix is None:
        raise refused or missing((0,), _TOPIC, timeout_s)
    return prefix


def _error(said: _Answer) -> BaseException | None:
    word = decode(said.error).word if said.error else b""
    return word if isinstance(word, BaseException) else None
