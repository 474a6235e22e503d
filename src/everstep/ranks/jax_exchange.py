"""The exchange through the coordination service of jax.distributed, and who this process is there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote

from everstep.errors import NotYetSupported, StoreUnavailable
from everstep.ranks.timed_calls import TimedCalls

__all__ = ["JaxExchange", "JaxIdentity", "jax_identity"]

_T = TypeVar("_T")
_CALL_S: Final = 30.0
"""How long one call may take. The service answers in a millisecond; one whose process is frozen never does."""
_VERBS: Final = ("key_value_set_bytes", "key_value_try_get_bytes", "key_value_delete")


class JaxIdentity(NamedTuple):
    """The number that jax gives this process, and how many there are."""

    rank: int
    world: int


def jax_identity() -> JaxIdentity | None:
    """Who this process is for jax; None where jax.distributed is not initialised.

    It is the number that jax's devices have as ``process_index``, by which sharded arrays name their ranks.
    On some TPUs that is not the ``process_id`` given to ``jax.distributed.initialize``. The first call starts
    jax's devices, as any computation does.
    """
    jax = sys.modules.get("jax")
    if jax is None:
        return None
    told = getattr(jax.distributed, "is_initialized", None)  # jax 0.5 has it not
    initialised = told() if told is not None else _client() is not None
    if not initialised:
        return None
    return JaxIdentity(rank=jax.process_index(), world=jax.process_count())


class JaxExchange:
    """Keys in the service that process 0 of jax.distributed runs, below ``prefix``.

    jax has no public name for the client: it is found where jax 0.5 to 0.12 have it. Each call has a deadline,
    because jax's own waits for ever when process 0 is frozen; after that the exchange is dead. When process 0
    dies, jax itself ends all other processes.
    """

    def __init__(self, *, prefix: str) -> None:
        """Raises `StoreUnavailable` where jax.distributed is not initialised, `NotYetSupported` for an unknown jax."""
        client = _client()
        if client is None:
            raise StoreUnavailable(
                "jax.distributed is not initialised",
                hint="call jax.distributed.initialize() before the Checkpointer is made",
            )
        missing = [verb for verb in _VERBS if not hasattr(client, verb)]
        if missing:
            raise _unknown_jax(f"its client has no {missing[0]}")
        self._client: Any = client
        self._prefix = prefix
        self._poll_s = max(0.02, int(_state().num_processes) / 5000)
        self._calls = TimedCalls("everstep-jax-service")

    @property
    def poll_s(self) -> float:
        """Seconds between two questions, so that all ranks together ask at most 5,000 times in a second."""
        return self._poll_s

    def put(self, key: str, value: bytes) -> None:
        """One request."""
        with suppress(_Taken):
            self._call(lambda: self._client.key_value_set_bytes(self._key(key), value))

    def find(self, key: str) -> bytes | None:
        """One request."""
        with suppress(_Absent):
            found: bytes = self._call(lambda: self._client.key_value_try_get_bytes(self._key(key)))
            return found
        return None

    def forget(self, key: str) -> None:
        """One request."""
        with suppress(StoreUnavailable, _Absent):
            self._call(lambda: self._client.key_value_delete(self._key(key)))

    def close(self) -> None:
        """Let the client go; the service is the program's."""
        self._calls.close(_CALL_S)
        self._client = None

    def _key(self, key: str) -> str:
        """One part for each key: the service deletes with a key all that lies under it."""
        return f"{quote(self._prefix, safe='')}/{quote(key, safe='')}"

    def _call(self, call: Callable[[], _T]) -> _T:
        try:
            return self._calls.run(call, _CALL_S)
        except (RuntimeError, TimeoutError) as error:
            text = str(error)
            if text.startswith("NOT_FOUND"):
                raise _Absent from None
            if text.startswith("ALREADY_EXISTS"):
                raise _Taken from None
            raise StoreUnavailable(
                f"jax's coordination service does not answer: {text.partition(chr(10))[0] or 'no answer in time'}",
                hint="process 0 runs it: it has ended, or hangs, or called jax.distributed.shutdown(); look at its log",
                rank=0,
            ) from None


class _Absent(Exception):
    """Nobody has put the key."""


class _Taken(Exception):
    """Somebody has put the key."""


def _state() -> Any:
    """What jax keeps about jax.distributed."""
    try:
        from jax._src.distributed import global_state  # noqa: PLC0415  # private, and loaded by jax already
    except ImportError:
        raise _unknown_jax("it has no jax._src.distributed.global_state") from None
    return global_state


def _client() -> Any | None:
    state = _state()
    if not hasattr(state, "client") or not hasattr(state, "num_processes"):
        raise _unknown_jax("its state of jax.distributed has other names")
    return state.client


def _unknown_jax(what: str) -> NotYetSupported:
    version = sys.modules["jax"].__version__
    return NotYetSupported(
        f"jax {version} is not one that everstep knows: {what}",
        hint="everstep was tested with jax 0.5 to 0.12: use one of these",
        version=version,
    )
