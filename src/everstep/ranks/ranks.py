"""What the ranks of one launch tell each other and decide together: never by a collective, always with a deadline."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping

from everstep.errors import RanksMissing, StoreUnavailable, UsageError
from everstep.ranks.exchange import Exchange
from everstep.ranks.identity import Identity
from everstep.ranks.judging import gather
from everstep.ranks.meeting import meet
from everstep.ranks.node import node_id, nodes, ranks_on
from everstep.ranks.parcels import Parcels
from everstep.ranks.topics import family_of, key_part
from everstep.ranks.waiting import Waiting, missing
from everstep.ranks.words import Word, decode, encode, named

__all__ = ["Ranks"]


class Ranks:
    """One rank's end of the exchange with the others.

    All ranks must make the same calls in the same order within a family of topics; a family is what stands
    before a topic's first ``/``, and one thread of a process uses it at a time. Other threads may use other
    families meanwhile. The same topic may come again after a `settle` of its family.

    A word is bytes (of any length that a store of torch or a small object can bear: some MiB), or the error that
    a rank stopped with. An error told by one rank is raised on all, as its own class, with the rank in its
    message and in its field ``rank``; so is one that ``decide`` raises, as it is. The first call that needs the others
    finds them: that is where words of an earlier launch in the same store are told from ours.

    ``patience_s`` is how long `local_ranks` waits. Errors: `RanksMissing` with ``missing`` (numbers) and
    ``topic``; `StoreUnavailable` when what carries the words does not answer.
    """

    def __init__(
        self,
        exchange: Exchange,
        identity: Identity,
        *,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.monotonic,
        patience_s: float = 600.0,
        node: str | None = None,
        token: str | None = None,
    ) -> None:
        self.identity = identity
        self._exchange = exchange
        self._waiting = Waiting(sleep=sleep, now=now, poll_s=exchange.poll_s)
        self._patience_s = patience_s
        self._node = node_id() if node is None else node
        self._token = secrets.token_hex(8) if token is None else token
        self._parcels: Parcels | None = None
        self._meeting = threading.Lock()
        self._numbers: dict[str, int] = {}
        self._turns: dict[str, int] = {}
        self._stale: dict[str, list[str]] = {}
        self._local: tuple[int, ...] | None = None

    @property
    def rank(self) -> int:
        """This rank's number."""
        return self.identity.rank

    @property
    def world(self) -> int:
        """How many ranks there are."""
        return self.identity.world

    @property
    def poll_s(self) -> float:
        """Seconds between two questions of this rank when it has waited for a while."""
        return self._exchange.poll_s

    @property
    def watch_s(self) -> float:
        """Seconds between two questions of this rank when it only listens, for as long as a training lasts.

        Half a second, or more with many ranks: together they ask at most 1,000 times in a second on
        torch's store (2 s with 2,048 ranks); 5 s and more on the checkpoint store, 100 requests in a second.
        """
        return max(0.5, 5 * self._exchange.poll_s)

    @property
    def local_ranks(self) -> tuple[int, ...]:
        """The ranks on this rank's node, sorted, itself among them.

        torchrun says it; elsewhere all ranks must ask, each once, because rank 0 gathers their nodes.
        Raises `RanksMissing`.
        """
        if self._local is None:
            known = ranks_on(self.identity)
            if known is None:
                told = self.settle("everstep.node", self._node.encode(), nodes, timeout_s=self._patience_s)
                known = ranks_on(self.identity, told)
            assert known is not None, "rank 0 told the nodes"
            self._local = known
        return self._local

    def tell(self, topic: str, word: Word) -> None:
        """Say something to the ranks that will `hear` it; an error is raised there.

        Does not wait, but for the others to be there at all when it is the first call. Raises `UsageError` for a
        topic that this rank has told already and that no `settle` of its family has ended.
        """
        self.meet(self._patience_s)
        key = f"{self._turn(topic)}/{key_part(topic)}.{self.rank}"
        if key in self._stale.get(family_of(topic), ()):
            raise UsageError(
                f"rank {self.rank} has told {topic!r} already",
                hint="give each word a topic of its own, or settle one of its family in between",
                topic=topic,
            )
        self._say(topic, key, encode(topic, self._mine(word)))

    def hear(self, topic: str, *, timeout_s: float, who: int = 0) -> bytes:
        """What rank ``who`` tells under a topic, before or after this call.

        Raises its error, or `RanksMissing` naming it.
        """
        until = self._waiting.deadline(timeout_s)
        self.meet(timeout_s)
        key = f"{self._turn(topic)}/{key_part(topic)}.{who}"
        text = self._wait(key, until)
        if text is None:
            raise missing((who,), topic, timeout_s)
        return _opened(text)

    def settle(
        self,
        topic: str,
        mine: Word,
        decide: Callable[[Mapping[int, bytes]], bytes],
        *,
        timeout_s: float,
    ) -> bytes:
        """The verdict that rank 0 makes of all ranks' words; the same value or the same error on all ranks.

        ``decide`` runs on rank 0 only, with the word of every rank; what it raises is raised on all. A rank whose
        word is an error raises that error at once; all others raise it as soon as they see it,
        without waiting for the rest. Ranks that do not come in time are named on all ranks. When rank 0
        itself gives no verdict, the others name it, after at most twice ``timeout_s`` (once for it to
        come, once for it to gather) and a margin.
        """
        self.meet(timeout_s)
        place = self._turn(topic)
        self._turns[family_of(topic)] = self._turns.get(family_of(topic), 0) + 1
        before = tuple(self._stale.get(family_of(topic), ()))
        word = self._mine(mine)
        self._say(topic, f"{place}/word/{self.rank}", encode(topic, word))
        if isinstance(mine, BaseException):
            self._say(topic, f"{place}/{'verdict' if self.rank == 0 else 'error'}", encode(topic, word))
            raise mine
        verdict = (
            self._judge(topic, place, mine, decide, timeout_s)
            if self.rank == 0
            else self._verdict(topic, place, timeout_s)
        )
        for key in before:  # every rank has come to this topic, so nobody asks for those before it
            self._carry().forget(key)
        del self._stale[family_of(topic)][: len(before)]
        return verdict

    def meet(self, timeout_s: float) -> None:
        """Find the other ranks of this launch; once, at the first call. Raises `RanksMissing`."""
        with self._meeting:
            if self._parcels is None:
                prefix = meet(
                    self._exchange,
                    self.identity,
                    token=self._token,
                    waiting=self._waiting,
                    timeout_s=timeout_s,
                )
                self._parcels = Parcels(self._exchange, f"{prefix}t/")

    def number(self, name: str) -> int:
        """0, then 1, and so on: the same on all ranks that ask in the same order."""
        number = self._numbers.get(name, 0)
        self._numbers[name] = number + 1
        return number

    def put(self, key: str, value: bytes) -> None:
        """A bare key of this launch, first value wins; for protocols that do not go by turns."""
        self._carry().put(key, value)

    def find(self, key: str) -> bytes | None:
        """The value of a bare key of this launch, or None."""
        return self._carry().find(key)

    def forget(self, key: str) -> None:
        """Remove a bare key."""
        self._carry().forget(key)

    def close(self) -> None:
        """Let the exchange go. Nothing that this rank said before is lost, as far as the exchange keeps it."""
        self._exchange.close()

    def _mine(self, word: Word) -> Word:
        if isinstance(word, BaseException) and self.world > 1:
            return named(word, self.rank)
        return word

    def _carry(self) -> Parcels:
        assert self._parcels is not None, "the ranks have not met"
        return self._parcels

    def _turn(self, topic: str) -> str:
        family = family_of(topic)
        return f"{key_part(family)}/{self._turns.get(family, 0)}"

    def _say(self, topic: str, key: str, text: bytes) -> None:
        self._carry().put(key, text)
        self._stale.setdefault(family_of(topic), []).append(key)

    def _judge(
        self,
        topic: str,
        place: str,
        mine: bytes,
        decide: Callable[[Mapping[int, bytes]], bytes],
        timeout_s: float,
    ) -> bytes:
        try:
            words = gather(
                self._carry().find,
                topic,
                place,
                mine,
                world=self.world,
                waiting=self._waiting,
                timeout_s=timeout_s,
            )
            verdict = decide(words)
        except BaseException as error:
            self._say(topic, f"{place}/verdict", encode(topic, error))
            raise
        self._say(topic, f"{place}/verdict", encode(topic, verdict))
        return verdict

    def _verdict(self, topic: str, place: str, timeout_s: float) -> bytes:
        key = f"{place}/verdict"
        patience_s = timeout_s + self._waiting.margin_s
        text = self._wait(key, self._waiting.deadline(patience_s))
        if text is None and self._carry().find(f"{place}/word/0") is not None:
            text = self._wait(
                key, self._waiting.deadline(patience_s)
            )  # it came, perhaps late: it has its own deadline
        if text is None:
            raise missing((0,), topic, timeout_s)
        verdict = _opened(text)
        if (other := decode(text).topic) != topic:
            raise UsageError(
                f"rank 0 is at {other!r} while rank {self.rank} is at {topic!r}",
                hint="every rank must restore, save and stop at the same points of the program",
                rank=self.rank,
            )
        return verdict

    def _wait(self, key: str, until: float) -> bytes | None:
        def found() -> bytes | None:
            try:
                return self._carry().find(key)
            except StoreUnavailable as error:
                gone = error.fields.get("rank")
                if not isinstance(gone, int):
                    raise
                raise RanksMissing(
                    f"rank {gone} is gone: {error.message}", hint=error.hint, missing=(gone,), topic=key
                ) from error

        return self._waiting.first(found, until)


def _opened(text: bytes) -> bytes:
    said = decode(text)
    if isinstance(said.word, BaseException):
        raise said.word
    return said.word
