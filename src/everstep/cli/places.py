"""From words to a store, a run and a checkpoint."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from everstep.errors import CheckpointNotFound, RunNotFound, UsageError

if TYPE_CHECKING:
    from everstep.events import Listener
    from everstep.repository.checkpoint import Checkpoint
    from everstep.repository.repository import Repository
    from everstep.store.protocol import Store

__all__ = ["opened", "run_of", "selected", "selector", "store_at", "store_url"]


def store_url(flag: str | None) -> str:
    """Where the store is: the flag, else the settings. Raises `UsageError` when nothing says it."""
    from everstep.config import settings

    url = flag or settings().store
    if not url:
        raise UsageError("no store is named", hint="give --store URL, or set EVERSTEP_STORE")
    return url


def store_at(url: str, listener: Listener | None = None) -> Store:
    """The store itself."""
    from everstep.events import silent
    from everstep.store.opening import open_store

    return open_store(url, listener=listener or silent)


def opened(flag: str | None, *, create: bool = False, listener: Listener | None = None) -> Repository:
    """The repository in the store that the flag or the settings name."""
    from everstep.repository.opening import open_repository

    return open_repository(store_at(store_url(flag), listener), create=create)


def run_of(argument: str | None, flag: str | None) -> str | None:
    """The run: the argument, else ``--run``, else the settings; None when nothing says it."""
    from everstep.config import settings

    return argument or flag or settings().run


def selector(text: str | None, run: str | None) -> str:
    """What the user wrote as RUN, RUN@STEP or tag:NAME; ``@STEP`` and nothing at all speak of ``--run``.

    Raises `UsageError` when no run is named.
    """
    if text and not text.startswith("@"):
        return text.removesuffix("@latest")
    named = run_of(None, run)
    if not named:
        raise UsageError("no run is named", hint="write RUN or RUN@STEP, give --run, or set EVERSTEP_RUN")
    return named + (text or "").removesuffix("@latest")


def selected(repository: Repository, text: str | None, run: str | None = None) -> Checkpoint:
    """The checkpoint that was asked for. Raises `RunNotFound`, `CheckpointNotFound`, `CheckpointPruned`."""
    from everstep.repository.catalogue import resolve

    name = selector(text, run)
    try:
        return resolve(repository, name)
    except RunNotFound as error:
        raise with_near_runs(repository, error, name.partition("@")[0]) from None
    except CheckpointNotFound as error:
        if not name.startswith("tag:"):
            raise
        raise _with_near_tags(repository, error, name.removeprefix("tag:")) from None


def with_near_runs(repository: Repository, error: RunNotFound, asked: str) -> RunNotFound:
    """The error with names of runs that are near to what was asked, or of those there are."""
    from everstep.repository.catalogue import runs

    hint = _near(asked, [record.run for record in runs(repository)], "runs")
    return RunNotFound(error.message, hint=hint, **error.fields)


def _with_near_tags(repository: Repository, error: CheckpointNotFound, asked: str) -> CheckpointNotFound:
    from everstep.repository.tags import tags

    hint = _near(asked, [record.tag for record in tags(repository)], "tags")
    return CheckpointNotFound(error.message, hint=hint, **error.fields)


def _near(asked: str, names: list[str], what: str) -> str:
    """What may have been meant, or what there is."""
    folded = {name.lower(): name for name in names}
    near = [folded[name] for name in difflib.get_close_matches(asked.lower(), folded, n=3, cutoff=0.5)]
    if near:
        return f"did you mean {' or '.join(near)}?"
    if names:
        return f"{what} here: {', '.join(names[:10])}{' ...' if len(names) > 10 else ''}"
    return f"the store has no {what}"
