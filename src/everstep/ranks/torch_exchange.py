"""The exchange through torch's store, over a connection of its own: no process group is touched."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed

from everstep.errors import StoreUnavailable, UsageError
from everstep.ranks.timed_calls import TimedCalls

__all__ = ["TorchExchange", "agent_exchange", "default_exchange", "own_connection"]

dist: Any = torch.distributed
"""Its stores are made by pybind11, and what torch says of their types is not whole."""

_T = TypeVar("_T")
_CALL_S = 30.0
"""How long one call may take. A store answers in milliseconds; one whose process is frozen never does."""
_CONNECT_S = 15.0


class TorchExchange:
    """Keys in a store of torch (TCPStore, FileStore, HashStore, with or without PrefixStore).

    ``store`` must be a connection of its own: calls on a connection that training uses would wait for
    each other. ``held`` is kept alive meanwhile: the process that serves a TCPStore stops when its object
    goes. ``rank`` is whose process serves it, or None when no rank's does. Each call has a deadline, because
    torch's own waits for ever when the process that serves is frozen; after that the exchange is dead.
    """

    def __init__(
        self, store: Any, *, prefix: str, poll_s: float, where: str, rank: int | None, held: Any = None
    ) -> None:
        self._store: Any = dist.PrefixStore(prefix, store)
        self._store.set_timeout(timedelta(seconds=_CALL_S / 2))
        self._held = held
        self._poll_s = poll_s
        self._where = where
        self._rank = rank
        self._calls = TimedCalls("everstep-torch-store")

    @property
    def poll_s(self) -> float:
        """Seconds between two questions."""
        return self._poll_s

    def put(self, key: str, value: bytes) -> None:
        """One request."""
        self._call(
            lambda: self._store.compare_set(key, "", b"=" + value)
        )  # an empty value would mean: no value

    def find(self, key: str) -> bytes | None:
        """One request when the key is not there, else two."""
        return self._call(lambda: self._get(key))

    def forget(self, key: str) -> None:
        """One request, where the store can delete."""
        with suppress(StoreUnavailable):
            self._call(lambda: self._store.delete_key(key))

    def close(self) -> None:
        """Close the connection."""
        self._calls.close(_CALL_S)
        self._store = self._held = None

    def _get(self, key: str) -> bytes | None:
        if not self._store.check([key]):
            return None
        value: bytes = self._store.get(key)
        return value[1:]

    def _call(self, call: Callable[[], _T]) -> _T:
        try:
            return self._calls.run(call, _CALL_S)
        except (RuntimeError, TimeoutError) as error:
            raise _unavailable(self._where, error, self._rank) from None


def default_exchange(*, prefix: str, world: int) -> TorchExchange:
    """An exchange over a connection of its own to the store of the process group that is initialised.

    Raises `StoreUnavailable` when its process has ended or hangs.
    """
    held = dist.distributed_c10d._get_default_store()  # noqa: SLF001  # torch has no public name for it
    where, served = _described(held)
    rank = 0 if served else None
    store = _connected(lambda: own_connection(held), where=where, rank=rank)
    return TorchExchange(store, prefix=prefix, poll_s=poll_s(world), where=where, rank=rank, held=held)


def agent_exchange(*, host: str, port: int, prefix: str, world: int) -> TorchExchange:
    """An exchange over a connection of its own to the store that torchrun's agent serves."""
    where = f"{host}:{port}"
    store = _connected(lambda: _client(host, port), where=where, rank=None)
    return TorchExchange(store, prefix=prefix, poll_s=poll_s(world), where=where, rank=None)


def own_connection(store: Any) -> Any:
    """The same store over another connection.

    By its address, because torch's own clone waits as long as training's store does when the process that serves it
    is gone: half an hour. The store's prefixes are lost, which does no harm: ranks tell their launch's words by a
    random token. Raises `UsageError` for a store that other processes cannot reach by an address.
    """
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    if isinstance(store, dist.TCPStore):
        return _client(store.host, store.port)
    if isinstance(store, dist.FileStore):
        return dist.FileStore(store.path, -1)  # -1: closing this one does not count towards removing the file
    if isinstance(store, dist.HashStore):
        return store
    raise UsageError(
        f"the process group's store, a {type(store).__name__}, cannot be reached over a connection of its own",
        hint="use init_process_group with a TCPStore or a FileStore, as its init_method tcp:// or file:// makes them",
    )


def _client(host: str, port: int) -> Any:
    return dist.TCPStore(host, port, None, False, timedelta(seconds=_CONNECT_S), wait_for_workers=False)


def _connected(connect: Callable[[], _T], *, where: str, rank: int | None) -> _T:
    """A connection made before a deadline, also where torch's own waits for ever."""
    calls = TimedCalls("everstep-torch-connect")
    try:
        return calls.run(connect, _CALL_S)
    except (RuntimeError, TimeoutError) as error:
        raise _unavailable(where, error, rank) from None
    finally:
        calls.close(0)


def _unavailable(where: str, error: Exception, rank: int | None) -> StoreUnavailable:
    whose = {} if rank is None else {"rank": rank}
    return StoreUnavailable(
        f"torch's store at {where} does not answer: {error or 'no answer in time'}",
        hint="its process has ended or hangs: look at the log of rank 0, or of torchrun on its node; MASTER_ADDR and "
        "MASTER_PORT must name it",
        **whose,
    )


def poll_s(world: int) -> float:
    """Seconds between two questions of one rank, so that all together ask at most 5,000 times in a second."""
    return max(0.02, world / 5000)


def _described(store: Any) -> tuple[str, bool]:
    """Where a store is, and whether a rank's process may serve it."""
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    if isinstance(store, dist.TCPStore):
        return f"{store.host}:{store.port}", True
    if isinstance(store, dist.FileStore):
        return str(store.path), False
    return type(store).__name__, False
