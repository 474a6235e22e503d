"""Reading a checkpoint without a training: the whole state, or the model built again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from everstep.checkpointer.launch import open_reading
from everstep.checkpointer.restoring import Restored, check_on_corrupt, fetch, newest_whole
from everstep.checkpointer.telling import log_event
from everstep.config import settings
from everstep.errors import CheckpointNotFound, UsageError
from everstep.events import Listener
from everstep.format.ids import SaveId, parse_run
from everstep.repository.catalogue import candidates, checkpoint, find, find_run
from everstep.repository.checkpoint import Checkpoint
from everstep.state.architecture import rebuild_model
from everstep.state.conversion import assemble
from everstep.store.protocol import Store

__all__ = ["load", "rebuild"]


def load(
    store: str | Store | None = None,
    run: str | None = None,
    *,
    step: int | None = None,
    only: Sequence[str] = (),
    on_corrupt: str = "previous",
    listener: Listener = log_event,
) -> Any:
    """The training state of a checkpoint, in the same nesting as was saved.

    Tensors are torch tensors where torch is installed, else NumPy arrays; what was `PerRank` is a dict by
    rank; dataclasses and objects are dicts by field. ``step=None`` is the newest checkpoint, and there
    ``on_corrupt`` says what damage does: "previous" or "fail". ``only`` are patterns of paths
    (``["model/*"]``; ``*`` matches ``/`` too): what they name and all below it comes, and little else is read.
    Writes nothing, but a pin while it reads for more than 20 s, where it may. Raises `RunNotFound`,
    `CheckpointNotFound`, `IntegrityError`, and `UsageError` for a pattern that names nothing.
    """
    return _load(store, run, step=step, only=only, on_corrupt=on_corrupt, listener=listener).value


def rebuild(
    store: str | Store | None = None,
    run: str | None = None,
    *,
    step: int | None = None,
    factory: Callable[..., Any] | str | None = None,
    at: str | None = None,
    on_corrupt: str = "previous",
    listener: Listener = log_event,
) -> Any:
    """The model of a checkpoint, built from its architecture record, with its weights.

    Calls the factory that the record names (or ``factory``) with the recorded arguments: that is code of
    yours; nothing else is run. ``at`` is the path of the model's part in the state, needed where several
    parts have its parameters' names. Raises `UsageError` when the checkpoint has no architecture record or
    it cannot be built from it, `RestoreMismatch` when the built model has other parameters.
    """
    restored = _load(store, run, step=step, on_corrupt=on_corrupt, listener=listener)
    record = restored.manifest.meta.architecture
    if record is None:
        raise UsageError(
            f"{restored.checkpoint} has no architecture record",
            hint="save with Checkpointer(..., architecture=es.Architecture.of(model, ...)), or load the state",
        )
    return rebuild_model(record, state=restored.value, factory=factory, at=at)


def _load(
    store: str | Store | None,
    run: str | None,
    *,
    step: int | None,
    on_corrupt: str,
    listener: Listener,
    only: Sequence[str] = (),
) -> Restored[Any]:
    check_on_corrupt(on_corrupt)
    chosen = settings(store=store if isinstance(store, str) else None, run=run)
    where = store if store is not None else chosen.store
    if where is None or chosen.run is None:
        raise UsageError(
            "no store or no run is given", hint="pass store and run=, or set EVERSTEP_STORE and _RUN"
        )
    repository = open_reading(where, listener)

    def read(found: Checkpoint) -> Restored[Any]:
        return fetch(
            repository,
            found,
            partial(assemble, only=only),
            budget_bytes=chosen.budget_bytes,
            workers=chosen.workers,
            listener=listener,
        )

    named = parse_run(chosen.run)
    if step is not None:
        return read(find(repository, named, step))

    def candidate(save: SaveId) -> Restored[Any] | None:
        found = checkpoint(repository, named, save)
        return None if found is None else read(found)

    restored = newest_whole(
        candidates(repository, named), candidate, run=named, on_corrupt=on_corrupt, listener=listener
    )
    if restored is None:
        find_run(repository, named)
        raise CheckpointNotFound(
            f"run {chosen.run!r} has no checkpoint in {repository.store.url}",
            hint="everstep ls shows what is there",
            run=chosen.run,
        )
    return restored
