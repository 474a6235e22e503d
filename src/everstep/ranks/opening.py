"""Which exchange this launch has: torch's store, jax's service, or the checkpoint store itself."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from everstep.config import ProcessSettings
from everstep.errors import UsageError
from everstep.ranks.exchange import Exchange
from everstep.ranks.identity import Identity, who_am_i
from everstep.ranks.local_exchange import LocalExchange
from everstep.ranks.ranks import Ranks
from everstep.ranks.store_exchange import Objects, StoreExchange

__all__ = ["choose_exchange", "launch_id", "open_ranks"]


def open_ranks(
    told: ProcessSettings,
    identity: Identity | None = None,
    *,
    store: Objects,
    run: str,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> Ranks:
    """This process among the others of its launch; nothing is waited for yet.

    Raises `UsageError` as `who_am_i`, or when nothing connects the ranks.
    """
    me = who_am_i(told) if identity is None else identity
    exchange = choose_exchange(told, me, store=store, run=run)
    return Ranks(exchange, me, sleep=sleep, now=now, patience_s=told.patience)


def choose_exchange(told: ProcessSettings, me: Identity, *, store: Objects, run: str) -> Exchange:
    """The first of these that is there on all ranks alike.

    The store of torch's process group, cloned; the store of torchrun's agent; jax's coordination service; the
    checkpoint store, which needs an id of this launch (``EVERSTEP_LAUNCH`` or what a launcher sets).
    A bare ``MASTER_ADDR`` without a process group is left alone: nobody listens there yet, and the port
    is for ``init_process_group``. Raises `UsageError` naming the variable that is missing.
    """
    if me.world == 1:
        return LocalExchange()
    torch = sys.modules.get("torch.distributed")
    restart = told.torchelastic_restart_count or 0
    prefix = "/".join(filter(None, ("everstep", told.torchelastic_run_id, f"{restart}", run)))
    if torch is not None and torch.is_available() and torch.is_initialized():
        from everstep.ranks.torch_exchange import default_exchange  # noqa: PLC0415  # only where torch is in use

        return default_exchange(prefix=prefix, world=me.world)
    if told.torchelastic_use_agent_store and told.master_addr and told.master_port:
        try:
            from everstep.ranks.torch_exchange import agent_exchange  # noqa: PLC0415
        except ModuleNotFoundError:
            pass  # torchrun can start programs that have no torch: they go by the checkpoint store
        else:
            host, port = told.master_addr, told.master_port
            return agent_exchange(host=host, port=port, prefix=prefix, world=me.world)
    if "jax" in sys.modules:
        from everstep.ranks.jax_exchange import JaxExchange, jax_identity  # noqa: PLC0415  # only where jax is in use

        if jax_identity() is not None:
            return JaxExchange(prefix=prefix)
    return StoreExchange(store, run=run, launch=launch_id(told), poll_s=max(1.0, me.world / 500))


def launch_id(told: ProcessSettings) -> str:
    """An id that all ranks of this launch have alike, and no other launch has.

    Raises `UsageError` when no variable tells it.
    """
    if told.launch is not None:
        return told.launch
    if told.attempt is not None:
        return f"attempt-{told.attempt}"
    if told.torchelastic_run_id is not None:
        return f"torchrun-{told.torchelastic_run_id}-{told.torchelastic_restart_count or 0}"
    if told.slurm_job_id is not None and told.slurm_step_id is not None:
        return f"slurm-{told.slurm_job_id}-{told.slurm_step_id}-{told.slurm_restart_count}"
    raise UsageError(
        "nothing connects the ranks of this launch: no process group, no torchrun, no jax.distributed",
        hint="make the Checkpointer after init_process_group; or set EVERSTEP_LAUNCH to one new id on all ranks",
    )
